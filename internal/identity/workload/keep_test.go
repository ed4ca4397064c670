package workload

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnIdentityOutlastsARestart has a pod's process end and begin again while nobody signs: what it had is used for as long as it is
// good, and renewed in time.
func TestAnIdentityOutlastsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		file := filepath.Join(t.TempDir(), "identity")
		first := &Source{Sign: w.sign, File: file}
		w.start(first)
		time.Sleep(time.Second)
		synctest.Wait()
		id := first.Identity()
		if id == nil {
			t.Fatal("no identity")
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the file is %v, %v", info, err)
		}

		time.Sleep(10 * time.Hour)
		w.set(errors.New("down"))
		again := &Source{Sign: w.sign, File: file}
		asked := w.count()
		w.start(again)
		synctest.Wait()
		if got := again.Identity(); got == nil || !got.Certificate.Leaf.Equal(id.Certificate.Leaf) {
			t.Fatalf("after the restart the identity is %v", got)
		}
		if n := w.count(); n != asked {
			t.Errorf("asked %d times although the identity is good", n-asked)
		}
		w.set(nil)
		time.Sleep(12 * time.Hour) // by then two thirds of what was left are over
		synctest.Wait()
		if got := again.Identity(); got == nil || got.Certificate.Leaf.Equal(id.Certificate.Leaf) {
			t.Errorf("it is not renewed: %v", got)
		}

		w.set(errors.New("down"))
		time.Sleep(Life) // what was kept has ended
		late := &Source{Sign: w.sign, File: file}
		w.start(late)
		synctest.Wait()
		if got := late.Identity(); got != nil {
			t.Errorf("what has ended is used: %v", got)
		}
	})
}

// TestWhatIsNoIdentityIsNotRestored has files that others wrote, or that are not whole: another one is asked for.
func TestWhatIsNoIdentityIsNotRestored(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	keep := func(name string) []byte {
		s := &Source{Sign: w.sign, File: path(name)}
		if _, _, err := s.ask(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(s.File)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good, other := keep("good"), keep("other")
	if id, _, err := (&Source{File: path("good")}).restore(); err != nil || id == nil {
		t.Fatalf("a good one: %v, %v", id, err)
	}
	ofAnotherKey := append(append([]byte(nil), other[:len(other)/8]...), good[len(good)/8:]...) // the keys come first
	for name, text := range map[string][]byte{
		"empty": nil, "torn": good[:len(good)/2], "text": []byte("hello"), "of another key": ofAnotherKey, "without a key": []byte(`{"answer":"e30="}`),
		"long": make([]byte, 3*maxAnswer),
	} {
		if err := os.WriteFile(path("file"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if id, _, err := (&Source{File: path("file")}).restore(); err == nil {
			t.Errorf("%s: %v is used", name, id)
		}
	}
}
