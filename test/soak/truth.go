//go:build unix

package main

import (
	"fmt"
	"strconv"
	"sync/atomic"
)

// Header fields of the soak.
const (
	fieldConfig  = "x-soak-config"  // set by the configuration's filters, in the request and in the answer: its number
	fieldMark    = "x-soak-mark"    // sent by clients, removed by every second configuration
	fieldID      = "x-soak-id"      // of the request; the backend answers with it
	fieldVersion = "x-soak-version" // of the backend
	fieldSeen    = "x-soak-seen"    // what the backend saw of the first two
	fieldSum     = "x-soak-sum"     // trailer: length of the body
)

// truth is what answers are judged by. Configurations have numbers; all that is peculiar to one follows from its number.
type truth struct {
	written   atomic.Int64  // the newest that may be in force
	confirmed atomic.Int64  // no process goes by an older one
	broken    []atomic.Bool // by number: it was never to be served

	certWritten, certConfirmed atomic.Int64 // the same of certificates, by serial number
}

// versions that configurations split traffic over. The last speaks HTTP/2 only.
var versions = []string{"v1", "v2", "v3"}

// weights of the versions in configuration n.
func weights(n int) [3]int {
	return [...][3]int{{1, 0, 0}, {9, 1, 0}, {50, 50, 0}, {0, 1, 0}, {0, 90, 10}, {33, 33, 34}, {0, 0, 1}, {1, 0, 1}}[n%8]
}

func mirrored(n int) bool { return n%3 == 1 }

func unmarked(n int) bool { return n%2 == 1 }

// answer is what there is to judge of one.
type answer struct {
	id, wantID            string
	config, version, seen string
}

// judge says what is wrong with an answer, nil if nothing; oldest is truth.confirmed when the request began.
func (t *truth) judge(oldest int64, a *answer) error {
	if a.id != a.wantID {
		return fmt.Errorf("the answer is to request %q, not %q", a.id, a.wantID)
	}
	n, err := strconv.Atoi(a.config)
	if err != nil {
		return fmt.Errorf("the answer tells no configuration: %q", a.config)
	}
	if int64(n) < oldest || int64(n) > t.written.Load() {
		return fmt.Errorf("the answer is by configuration %d, in force are %d to %d", n, oldest, t.written.Load())
	}
	if t.broken[n].Load() {
		return fmt.Errorf("the answer is by configuration %d, which was broken", n)
	}
	want := a.config + ","
	if !unmarked(n) {
		want += "1"
	}
	if a.seen != want {
		return fmt.Errorf("the backend saw %q, by configuration %d it is %q", a.seen, n, want)
	}
	for i, v := range versions {
		if v == a.version && weights(n)[i] > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s answered, configuration %d has weights %v", a.version, n, weights(n))
}
