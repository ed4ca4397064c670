package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirmesh/weir/test/weirtest"
)

var (
	wantedRow = regexp.MustCompile(`all +shop-v1 +90\.00% +(8[5-9]|9[0-5])\.\d\d%`)
	mirrorRow = regexp.MustCompile(`all +shadow +20\.00% +(1[89]|2[0-2])\.\d\d%`)
)

func TestDemoShowsSharesAndMirror(t *testing.T) {
	r := weir("", "demo", "--for", "3s")
	r.want(t, 0, "curl http://127.0.0.1:", " rps  success 100.00%", "RULE", "mirror outcomes:  sent ", ", 0 failed")
	if !wantedRow.MatchString(r.stdout) || !mirrorRow.MatchString(r.stdout) {
		t.Errorf("the table lacks the shares that were wanted:\n%s", r.stdout)
	}
}

func TestDemoWithABrokenMirrorFailsNoRequest(t *testing.T) {
	weir("", "demo", "--for", "2s", "--break", "mirror", "--rate", "1000").want(t, 0,
		"success 100.00%", "dropped_", ", 0 failed", "!mirror outcomes:  sent")
}

func TestDemoReleasesAVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes the time that its steps take; TestDemoBeginsARelease is the short form")
	}
	t.Parallel()
	r := weir("", "demo", "--rollout", "--rate", "400")
	r.want(t, 0, "success 100.00%", "rollout: shop ✔ Healthy", ", 0 failed", "!mirror")
	for _, line := range []string{`step 1/4, set matches, measured [45]\.`, `step 2/4, set 10 %, measured (9\.9|10\.[01])`, `step 3/4, set 30 %, measured (29\.9|30\.[01])`, `step 4/4, set 60 %, measured (59\.9|60\.[01])`} {
		if !regexp.MustCompile(line).MatchString(r.stdout) {
			t.Errorf("no line has %s:\n%s", line, r.stdout)
		}
	}
}

func TestDemoBeginsARelease(t *testing.T) {
	t.Parallel()
	weir("", "demo", "--rollout", "--for", "4s").want(t, 0, "step 1/4, set matches, measured ", "weir rollout get shop -w", ", 0 failed")
	r := weir("", "demo", "--rollout", "--print")
	r.want(t, 0, "kind: Rollout")
	weir(r.stdout, "check", "--fail-on", "warning", "-").want(t, 0)
}

func TestDemoPrintsItsManifests(t *testing.T) {
	r := weir("", "demo", "--print")
	r.want(t, 0, "kind: HTTPRoute", "weight: 90", "requestMirror:")
	weir(r.stdout, "check", "--fail-on", "warning", "-").want(t, 0)
}

func TestDemoFollowsChangesOfItsManifestsAndEndsWithASignal(t *testing.T) {
	t.Parallel()
	cmd := weirtest.Command("demo")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	next := func(part string) string {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), part) {
				return lines.Text()
			}
		}
		t.Fatalf("the demo ended without printing %q", part)
		return ""
	}
	file, _, _ := strings.Cut(strings.Fields(next("change   edit"))[2], ":")
	next("of 90.00%")
	manifests, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(strings.Replace(string(manifests), "weight: 90", "weight: 50", 1), "weight: 10", "weight: 50", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	// What was under way at the change went by the weights before, and is much of the first second on a busy machine. With all of
	// the second before the change among them, the share would be above 55 % for longer.
	half := regexp.MustCompile(`shop-v1 (4[5-9]|5[0-4])\.\d\d% of 50\.00%`)
	for range 4 {
		if half.MatchString(next("of 50.00%")) {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	// The tables at the end are about the weights in force, the counts below them about the whole run.
	row := next(" shop-v1   50.00%")
	if !regexp.MustCompile(`50\.00% +(4[5-9]|5[0-5])\.\d\d%`).MatchString(row) {
		t.Errorf("the last table mixes what was before the change with what was after it: %s", row)
	}
	next(" s of configuration 2")
	next("since the start:")
	next("clients:")
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the demo ended with %v after SIGINT", err)
	}
	if _, err := os.Stat(filepath.Dir(file)); !os.IsNotExist(err) {
		t.Errorf("the demo left %s behind", filepath.Dir(file))
	}
}

// TestEchoCallsAnother has a service ask another one, and then one that is away.
func TestEchoCallsAnother(t *testing.T) {
	t.Parallel()
	cart, web := "127.0.0.1:"+fmt.Sprint(weirtest.FreePort(t)), "127.0.0.1:"+fmt.Sprint(weirtest.FreePort(t))
	called := weirtest.Start(t, "echo", "cart="+cart)
	calls := weirtest.Start(t, "echo", "web="+web, "--call", "http://"+cart)
	waitUntil(t, func() bool {
		return strings.Contains(called.Stdout(), "cart listens on") && strings.Contains(calls.Stdout(), "web listens on")
	})
	client := &http.Client{}
	defer client.CloseIdleConnections()
	ask := func() (int, string) {
		t.Helper()
		resp, err := client.Post("http://"+web+"/a%2Fb?x=1", "text/plain", strings.NewReader("12345"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	want := `{"service":"cart","method":"POST","path":"/a%2Fb","query":"x=1","host":"` + cart + `",`
	if status, body := ask(); status != http.StatusOK || !strings.HasPrefix(body, want) || !strings.HasSuffix(body, "\"body\":5}\n") {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	called.Stop()
	if status, body := ask(); status != http.StatusBadGateway || !strings.HasPrefix(body, "web has no answer of "+cart+": ") {
		t.Errorf("%d %s", status, body)
	}
}

func TestEchoAnswersWithWhatItReceived(t *testing.T) {
	t.Parallel()
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(weirtest.FreePort(t)))
	p := weirtest.Start(t, "echo", "shop="+address, "--fail-every", "3")
	waitUntil(t, func() bool { return strings.Contains(p.Stdout(), "shop listens on "+address) })

	client := &http.Client{}
	defer client.CloseIdleConnections()
	resp, err := client.Post("http://"+address+"/a%2Fb?x=1", "text/plain", strings.NewReader("12345"))
	if err != nil {
		t.Fatal(err)
	}
	var e struct {
		Service, Method, Path, Query, Host string
		Headers                            map[string]string
		Body                               int
	}
	err = json.NewDecoder(resp.Body).Decode(&e)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	if e.Service != "shop" || e.Method != "POST" || e.Path != "/a%2Fb" || e.Query != "x=1" || e.Host != address ||
		e.Headers["content-type"] != "text/plain" || e.Body != 5 {
		t.Errorf("echo = %+v", e)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in, out := []byte("hello"), []byte(nil)
	if err := conn.Invoke(context.Background(), "/shop.Cart/Add", &in, &out); err != nil || string(out) != "hello" {
		t.Errorf("gRPC echo = %q, %v, want the message back", out, err)
	}
	resp, err = client.Get("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the third request: %d, want 503", resp.StatusCode)
	}
	if !strings.Contains(p.Stdout(), "shop: POST "+address+"/a%2Fb?x=1\n") {
		t.Errorf("the request is not printed:\n%s", p.Stdout())
	}
	p.Stop()
}

// rawCodec sends and receives gRPC messages as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (rawCodec) Name() string { return "raw" }

func TestThreeDemosRunAtOnce(t *testing.T) {
	t.Parallel()
	results := make(chan result, 3)
	for range cap(results) {
		go func() {
			cmd := weirtest.Command("demo", "--for", "2s", "--rate", "50")
			out, err := cmd.CombinedOutput()
			r := result{stdout: string(out)}
			if err != nil {
				r.code = 1
			}
			results <- r
		}()
	}
	urls := map[string]bool{}
	for range cap(results) {
		r := <-results
		r.want(t, 0, ", 0 failed", "try it   curl http://127.0.0.1:")
		_, url, _ := strings.Cut(r.stdout, "try it   curl ")
		url, _, _ = strings.Cut(url, "\n")
		urls[url] = true
	}
	if len(urls) != cap(results) {
		t.Errorf("ports: %v", urls)
	}
}
