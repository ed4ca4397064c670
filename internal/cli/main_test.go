package cli_test

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/cli"
	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "4") // they wait for each other's processes: there may be more of them than cores
	weirtest.Main(m)
}

// result is what a command line left behind.
type result struct {
	code        int
	stdout, err string
}

// weir runs a command line in this process.
func weir(stdin string, args ...string) result {
	var out, err bytes.Buffer
	code := cli.Main(args, strings.NewReader(stdin), &out, &err)
	return result{code, out.String(), err.String()}
}

// want checks exit code and parts of the output; a part that begins with "!" must not occur, one that begins with
// "stderr:" is looked for there.
func (r result) want(t *testing.T, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, p := range parts {
		where, wanted := r.stdout, true
		if rest, ok := strings.CutPrefix(p, "stderr:"); ok {
			where, p = r.err, rest
		}
		if rest, ok := strings.CutPrefix(p, "!"); ok {
			wanted, p = false, rest
		}
		if strings.Contains(where, p) != wanted {
			t.Errorf("output holds %q: %v, want %v", p, !wanted, wanted)
		}
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", r.stdout, r.err)
	}
}
