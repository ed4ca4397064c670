package telemetry

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/weirmesh/weir/internal/loglimit"
)

// LogFile appends to the file of a name. If the file was renamed or removed, as logrotate does, the next write goes to
// a new file of that name; earlier lines stay in the old one. A file that was truncated (logrotate's copytruncate) is
// simply appended to.
type LogFile struct {
	path   string
	logger *slog.Logger

	mu       sync.Mutex
	file     *os.File
	is       fs.FileInfo // of file
	failures loglimit.Limiter
}

// OpenLogFile opens or creates the file. The logger hears when a new one cannot be opened.
func OpenLogFile(path string, logger *slog.Logger) (*LogFile, error) {
	l := &LogFile{path: path, logger: logger}
	l.failures.Every = complainEvery
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// open replaces the file by the one that now has the name.
func (l *LogFile) open() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	is, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.is = file, is
	return nil
}

// Write implements io.Writer.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow()
	return l.file.Write(p)
}

// Follow lets go of a file that has lost the name, without waiting for the next write.
func (l *LogFile) Follow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow()
}

// follow checks whether the name still leads to the file. If no other file can be opened, for example because
// descriptors ran out, it keeps the old one.
func (l *LogFile) follow() {
	is, err := os.Stat(l.path)
	if err == nil && os.SameFile(is, l.is) {
		return
	}
	if err = l.open(); err == nil {
		return
	}
	l.failures.Log(l.logger, slog.LevelError, "", "log file cannot be reopened, writing to the old one", "path", l.path, "err", err)
}

// Close closes the file.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	return nil
}
