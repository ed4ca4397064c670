package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/resource"
)

func TestMain(m *testing.M) {
	resource.CheckRules(nil) // as main does
	os.Exit(m.Run())
}

func TestCommandLine(t *testing.T) {
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "--break nothing|mirror"},
		{[]string{"--print"}, 0, "kind: HTTPRoute"},
		{[]string{"--fro", "1s"}, 2, "unknown flag: --fro"},
		{[]string{"extra"}, 2, `unexpected argument "extra"`},
		{[]string{"--rate", "0"}, 2, "--rate 0: want 1 to 5000"},
		{[]string{"--break", "all"}, 2, "nothing"},
	} {
		var out bytes.Buffer
		if code := run(x.args, &out, &out); code != x.code || !strings.Contains(out.String(), x.want) {
			t.Errorf("%q: exit code %d, want %d with %q: %s", x.args, code, x.code, x.want, out.String())
		}
	}
}

func TestDemoRunsAndSaysWhatItLeavesOut(t *testing.T) {
	var out, log bytes.Buffer
	if code := run([]string{"--for", "1s", "--rate", "50"}, &out, &log); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out.String(), log.String())
	}
	for _, part := range []string{"does not check rules that compare fields", "try it   curl http://127.0.0.1:", " shop-v1   90.00%", ", 0 failed"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in\n%s", part, out.String())
		}
	}
}
