package cli_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/size"
)

// TestSavingAFileInPlaceFailsNoRequest empties the files and writes them again, as an editor or a shell does, while requests run.
func TestSavingAFileInPlaceFailsNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	var load sync.WaitGroup
	var stop atomic.Bool
	var sent, failed atomic.Int64
	for range 4 {
		load.Go(func() {
			for !stop.Load() {
				if got := w.get(); sent.Add(1) > 0 && got != "blue" && got != "green" {
					failed.Add(1)
					t.Errorf("answer %q", got)
				}
				time.Sleep(time.Millisecond) // the machine has other work
			}
		})
	}
	save := func(name, content string, pause time.Duration) {
		f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		time.Sleep(pause) // longer than changes take to be seen
		for _, part := range []string{content[:len(content)/2], content[len(content)/2:]} {
			if _, err := f.WriteString(part); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
		}
	}
	last := ""
	for i := range size.Of(1, 6) {
		last = []string{"green", "blue"}[i%2]
		save("route.yaml", w.route(last), 300*time.Millisecond)
		save("services.yaml", w.services(), 300*time.Millisecond)
		waitUntil(t, func() bool { return w.get() == last })
	}
	stop.Store(true)
	load.Wait()
	if sent.Load() == 0 {
		t.Error("no request was sent")
	}
	// What is really gone is honoured.
	if err := os.Truncate(filepath.Join(w.dir, "route.yaml"), 0); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { got := w.get(); return got != last })
	w.weir.Stop()
}
