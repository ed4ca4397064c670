package process

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/peertest"
)

func TestConstantPagesOfTheProgramAreFound(t *testing.T) {
	const one = `00400000-00b9e000 r-xp 00000000 fe:00 1234                               /bin/program
Size:               7800 kB
Rss:                7608 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me 
`
	for name, x := range map[string]struct {
		old, new string
		none     bool
	}{
		"as it is":             {},
		"another file":         {"/bin/program", "/lib/library", true},
		"replaced file":        {"/bin/program", "/bin/program (deleted)", true},
		"no file":              {" /bin/program", "", true},
		"writable":             {"r-xp", "rw-p", true},
		"shared":               {"r-xp", "r-xs", true},
		"not readable":         {"r-xp", "---p", true},
		"relocated by loaders": {"Anonymous:             0", "Anonymous:             4", true},
		"swapped out":          {"Swap:                  0", "Swap:                  4", true},
		"an older kernel":      {"Anonymous:             0 kB\n", "", true},
	} {
		data := strings.Replace(one, x.old, x.new, 1)
		want := []span{{0x400000, 0xb9e000}}
		if x.none {
			want = nil
		}
		if got, err := constant(strings.NewReader(data+strings.Replace(one, "/bin/program", "/bin/other", 1)), "/bin/program"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %x, %v, want %x", name, got, err, want)
		}
	}
	if _, err := constant(strings.NewReader(strings.Replace(one, "00400000", "0x400000", 1)), "/bin/program"); err == nil {
		t.Error("what is no range of addresses is read")
	}
}

func TestSettleGivesPagesBack(t *testing.T) {
	file := func() int {
		resident, private := peertest.Memory(t, os.Getpid())
		return resident - private
	}
	before := file()
	if err := Settle(); err != nil {
		t.Fatal(err)
	}
	if after := file(); after > before/4*3 {
		t.Errorf("%d KiB of files are resident, %d before", after>>10, before>>10)
	}
	if before == 0 {
		t.Error("nothing of the program was resident")
	}
}
