package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAStateIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if _, err := Read(path, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it is written: %v", err)
	}
	// A process was killed while it wrote.
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "another", ""} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path, 7); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a temporary file is left: %v", err)
		}
	}
	if err := Write(path, []byte("more than 7")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 7); err == nil || !strings.Contains(err.Error(), "is larger than 7 bytes") {
		t.Errorf("%v", err)
	}
	if err := Write(filepath.Join(path, "no folder"), nil); err == nil {
		t.Error("written where no folder is")
	}
}
