package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLogFileFollowsItsName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	l, err := OpenLogFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write := func(s string) {
		t.Helper()
		if n, err := io.WriteString(l, s); n != len(s) || err != nil {
			t.Fatalf("%q: %d, %v", s, n, err)
		}
	}
	want := func(name, text string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != text || err != nil {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, text)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write("1\n")
	must(os.Rename(path, path+".1"))
	write("2\n")
	want("access.log.1", "1\n")
	want("access.log", "2\n")
	must(os.Remove(path))
	write("3\n")
	want("access.log", "3\n")
	must(os.Truncate(path, 0)) // copytruncate
	write("4\n")
	want("access.log", "4\n")
	must(os.Rename(path, path+".2"))
	must(os.WriteFile(path, []byte("by another\n"), 0o600)) // logrotate's create
	write("5\n")
	want("access.log", "by another\n5\n")
	want("access.log.2", "4\n")
	must(os.Rename(path, path+".3"))
	l.Follow()
	want("access.log", "")
}

func TestLogFileGoesOnWithTheOldOneWhereNoneCanBeOpened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	path := filepath.Join(dir, "access.log")
	l, err := OpenLogFile(path, slog.New(slog.NewTextHandler(&complaints, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := io.WriteString(l, "line\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(dir+"-moved", "access.log")); string(got) != "line\nline\nline\n" {
		t.Errorf("the old file holds %q", got)
	}
	if n := strings.Count(complaints.String(), "\n"); n != 1 {
		t.Errorf("%d complaints: %s", n, complaints.String())
	}
	if _, err := OpenLogFile(path, nil); err == nil {
		t.Error("opened a file in a folder that is not there")
	}
}

// stuck blocks each write until it is let go.
type stuck struct {
	gate chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func TestLinesOfAStuckWriterAreLostAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		w := &stuck{gate: make(chan struct{})}
		l := NewLines(w, LinesOptions{Name: "log", QueueBytes: 100, Logger: slog.New(slog.NewTextHandler(&told, nil))})
		const line = "0123456789abcdefghi\n" // 20 bytes: five fit
		for range 50 {
			if n, err := io.WriteString(l, line); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
		}
		synctest.Wait()
		if got := l.Dropped(); got != 45 {
			t.Errorf("%d lines lost, want 45", got)
		}
		if n := strings.Count(told.String(), "cannot keep up"); n != 1 {
			t.Errorf("told %d times: %s", n, told.String())
		}
		close(w.gate)
		synctest.Wait()
		io.WriteString(l, line)
		synctest.Wait()
		if n := strings.Count(told.String(), "written again"); n != 1 || !strings.Contains(told.String(), "dropped=45") {
			t.Errorf("told %d times: %s", n, told.String())
		}
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if got := w.got.String(); got != strings.Repeat(line, 6) {
			t.Errorf("wrote %q", got)
		}
	})
}

// A disk that is full now and then is reported once a minute, each time with the end of the loss.
func TestLossesThatComeAndGoAreToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		full := false
		w := writerFunc(func(p []byte) (int, error) {
			if full {
				return 0, errors.New("no space left on device")
			}
			return len(p), nil
		})
		l := NewLines(w, LinesOptions{Name: "log", Logger: slog.New(slog.NewTextHandler(&told, nil))})
		for range 100 { // ten minutes
			for _, f := range []bool{true, false} {
				full = f
				fmt.Fprintln(l, "line")
				synctest.Wait()
				time.Sleep(3 * time.Second)
			}
		}
		if begun, ended := strings.Count(told.String(), "cannot be written"), strings.Count(told.String(), "written again"); begun != 10 || ended != 10 {
			t.Errorf("told %d times of the beginning, %d of the end", begun, ended)
		}
		if l.Dropped() != 100 {
			t.Errorf("%d lines lost", l.Dropped())
		}
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A log tells its own losses in itself.
func TestProcessLogTellsItsOwnLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuck{gate: make(chan struct{})}
		l := NewLines(w, LinesOptions{Name: "log", QueueBytes: 400})
		log := slog.New(slog.NewTextHandler(l, nil))
		l.ReportInItself(log)
		for range 100 {
			log.Info("message")
		}
		synctest.Wait()
		close(w.gate)
		synctest.Wait()
		log.Info("message")
		synctest.Wait()
		if got := w.got.String(); strings.Count(got, "log is written again") != 1 {
			t.Errorf("%s", got)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
