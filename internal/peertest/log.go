package peertest

import (
	"bytes"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Log is what a program has written so far. The zero value is ready for use, from any goroutine.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Await waits until the log matches, and returns the match and those of its groups.
func (l *Log) Await(t testing.TB, pattern *regexp.Regexp) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if found := pattern.FindStringSubmatch(l.String()); found != nil {
			return found
		}
		if time.Now().After(end) {
			t.Fatalf("no %s in the log:\n%s", pattern, l)
		}
	}
}
