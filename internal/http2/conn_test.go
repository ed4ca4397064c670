package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/http1"
)

func TestLibraryClientIsServed(t *testing.T) {
	s := serve(t, Config{}, echo)
	c := library(t)
	for _, size := range []int{0, 1, 5000, 300000, 3 << 20} {
		sent := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		req, _ := http.NewRequest("POST", "http://"+s.addr+"/a?b", io.MultiReader(bytes.NewReader(sent)))
		req.Header["X-One"] = []string{"1", "2"}
		req.Header.Set("Cookie", "a=1; b=2")
		req.Trailer = http.Header{"X-Tail": {"end"}}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes of %d, %v", len(got), size, err)
		}
		if strings.Join(resp.Header["X-One"], ",") != "1,2" || resp.Header.Get("Cookie") != "a=1; b=2" || resp.Trailer.Get("X-Tail") != "end" {
			t.Errorf("%v, %v", resp.Header, resp.Trailer)
		}
	}
}

func TestOwnClientMeetsOwnServer(t *testing.T) {
	s := serve(t, Config{}, echo)
	c := open(t, s.addr, Config{})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, i*7919)
			h := get("/")
			h.Method, h.Body = "POST", http1.Body{Kind: http1.BodyLength, Length: int64(len(body))}
			h.Fields = []http1.Field{{Name: "X-Number", Value: fmt.Sprint(i)}, {Name: "Same", Value: "always"}}
			st, err := c.Open(h, nil, false)
			if err != nil {
				t.Error(err)
				return
			}
			defer st.Close()
			sent := make(chan error, 1)
			go func() { sent <- st.Send(body, true) }()
			head, err := st.AwaitHead(time.Now().Add(10 * time.Second))
			if err != nil {
				t.Error(err)
				return
			}
			numbered := func(f http1.Field) bool { return f.Name == "x-number" && f.Value == fmt.Sprint(i) }
			if !slices.ContainsFunc(head.Fields, numbered) || head.Status != 200 {
				t.Errorf("%+v", head)
			}
			got, err := readAll(st)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes of %d, %v", len(got), len(body), err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := c.Streams(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// TestEndThatCameWithTheLastFramesIsNoticed: the poller reports both at once.
func TestEndThatCameWithTheLastFramesIsNoticed(t *testing.T) {
	s := serve(t, Config{IdleTimeout: time.Hour}, hello)
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var b bytes.Buffer
	b.WriteString(Preface)
	f := http2.NewFramer(&b, nil)
	f.WriteSettings()
	f.WriteSettingsAck()
	nc.Write(b.Bytes())
	b.Reset()
	in := http2.NewFramer(nil, nc)
	for acked := false; !acked; {
		frame, err := in.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		acked = frame.Header().Type == http2.FrameSettings && frame.Header().Flags.Has(http2.FlagSettingsAck)
	}
	f.WriteGoAway(0, http2.ErrCodeNo, nil)
	nc.Write(b.Bytes())
	nc.(*net.TCPConn).CloseWrite()
	if err := <-s.ends; !errors.As(err, new(*ConnError)) {
		t.Errorf("%v", err)
	}
}
