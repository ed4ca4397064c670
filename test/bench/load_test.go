//go:build linux

package main

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// firstCPU is a processor this process may use.
func firstCPU(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	t.Fatal("no processor")
	return 0
}

func TestGeneratorCountsHowEveryRequestEnded(t *testing.T) {
	b := newBench(t)
	b.conns = 32 // each waits for the slow answers one after the other
	const rate, duration = 500, 200 * time.Millisecond
	const all = 100
	for _, c := range []struct {
		role role
		want loadResult
	}{
		{roleFast, loadResult{Requests: all, OK: all}},
		{roleLarge, loadResult{Requests: all, OK: all}},
		{roleSlow, loadResult{Requests: all, OK: all}},
		{roleGarbage, loadResult{Requests: all, Broken: all}},
		{roleBlackhole, loadResult{Requests: all, Late: all}},
	} {
		t.Run(string(c.role), func(t *testing.T) {
			grace := "-grace=10s"
			if c.role == roleBlackhole {
				grace = "-grace=100ms" // nothing will come
			}
			r, err := b.generate(b.backends[c.role], rate, duration, 0, bodyRequest(100), grace)
			if err != nil {
				t.Fatal(err)
			}
			if c.role == roleSlow && r.P50 < int64(slowDelay) {
				t.Errorf("p50 %v is less than the backend's delay", time.Duration(r.P50))
			}
			if got := (loadResult{Requests: r.Requests, OK: r.OK, Status: r.Status, Broken: r.Broken, Late: r.Late}); !reflect.DeepEqual(got, c.want) {
				t.Errorf("result %+v, want %+v", got, c.want)
			}
			if answered := uint64(r.OK + r.Status); r.Latencies.count() != answered || r.Lateness.count() != all || r.Latencies.most() < time.Duration(r.Max) {
				t.Errorf("%d latencies up to %v and %d latenesses, of %d answers up to %v", r.Latencies.count(), r.Latencies.most(), r.Lateness.count(), answered, time.Duration(r.Max))
			}
		})
	}
	if _, err := b.generate(b.backends[roleRefuse], rate, duration, 0, plainRequest()); err == nil {
		t.Error("a port that refuses connections gave no error")
	}
	counts, err := b.counts()
	if err != nil {
		t.Fatal(err)
	}
	if counts[roleFast][0] != all+1 || counts[roleLarge][0] != all || counts[roleBlackhole][0] != 0 || counts[roleBlackhole][1] != uint64(b.conns) {
		t.Errorf("the backend counted %v", counts)
	}
}

func TestGeneratorSendsItsRequestsInTurnWithoutARate(t *testing.T) {
	b := newBench(t)
	s := setting{Routes: 30, Stride: 1, Asked: 15}
	r, err := b.generate(b.backends[roleFast], 0, 100*time.Millisecond, 0, routesRequests(s), "-many")
	if err != nil {
		t.Fatal(err)
	}
	if r.OK == 0 || r.OK != r.Requests {
		t.Errorf("result %+v", r)
	}
	counts, err := b.counts()
	if err != nil {
		t.Fatal(err)
	}
	if got := counts[roleFast][0]; got != uint64(r.Requests)+1 {
		t.Errorf("the backend counted %d requests, the generator %d", got, r.Requests)
	}
}

func TestCallsAreCountedByTheirMessages(t *testing.T) {
	b := newBench(t)
	for _, messages := range []int{1, 7} {
		before, err := b.counts()
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.own("", "grpcload", b.backends[roleGRPC], 200*time.Millisecond, fmt.Sprint("-messages=", messages), "-conns=2")
		if err != nil {
			t.Fatal(err)
		}
		after, err := b.counts()
		if err != nil {
			t.Fatal(err)
		}
		calls := int(after[roleGRPC][0] - before[roleGRPC][0])
		if r.OK == 0 || r.OK != r.Requests || r.OK > calls*messages || r.OK <= (calls-2*h2Streams)*messages {
			t.Errorf("%+v: with %d messages a call, the backend counted %d calls", r, messages, calls)
		}
	}
	// Over HTTP/1.1 nobody answers a call.
	if r, err := b.own("", "grpcload", b.backends[roleFast], 100*time.Millisecond); err == nil {
		t.Errorf("no error, but %+v", r)
	}
}

func TestEachRequestMayHaveAConnection(t *testing.T) {
	b := newBench(t)
	r, err := b.generate(b.backends[roleFast], 0, 100*time.Millisecond, 0, plainRequest(), "-churn")
	if err != nil {
		t.Fatal(err)
	}
	counts, err := b.counts()
	if err != nil {
		t.Fatal(err)
	}
	// The last two are of the question itself.
	if r.OK == 0 || r.OK != r.Requests || counts[roleFast] != [2]uint64{uint64(r.OK) + 1, uint64(r.OK) + 1} {
		t.Errorf("result %+v, the backend counted %v", r, counts[roleFast])
	}
}

func TestAnswerHeadFindsTheLength(t *testing.T) {
	for head, want := range map[string]int{
		"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n":                    12,
		"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length:7\r\nA: b\r\n": 7,
		"HTTP/1.1 200 OK\r\nX-Content-Length: 7\r\n":                   -1,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n":            -1,
		"\x16\x03\x01 this is not HTTP at all\r\n":                     -1,
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n":                  -1,
	} {
		if got, _ := answerHead([]byte(head)); got != want {
			t.Errorf("%q: %d, want %d", head, got, want)
		}
	}
	if _, ok := answerHead([]byte("HTTP/1.1 503 No\r\nContent-Length: 0\r\n")); ok {
		t.Error("503 is a success")
	}
}
