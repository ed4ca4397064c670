package peertest

import (
	"io"
	"regexp"
	"slices"
	"testing"
)

func TestALogIsReadWhileItIsWritten(t *testing.T) {
	log := &Log{}
	go func() {
		_, _ = io.WriteString(log, "begins, at=")
		_, _ = io.WriteString(log, "here\n")
	}()
	if got := log.Await(t, regexp.MustCompile(`at=(\w+)\n`)); !slices.Equal(got, []string{"at=here\n", "here"}) {
		t.Errorf("%q", got)
	}
	if log.String() != "begins, at=here\n" {
		t.Errorf("%q", log)
	}
}
