package feed

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAProxyThatSaysSomethingElseAllTheTimeDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &Server{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		s.init()
		hostile := s.open(t.Context(), "default/edge", "edge-1", nil, func() {})
		honest := s.open(t.Context(), "default/edge", "edge-2", nil, func() {})
		for i := range 1000 {
			s.report(hostile, "", fmt.Sprint("refused for reason ", i))
			s.reportState(hostile, ownState{unserved: []Unserved{{Listener: fmt.Sprint("default/edge/", i), Reason: "in use"}, {Listener: "default/edge/b", Reason: "in use"}}})
		}
		s.report(honest, "", "regular expression too large")
		for _, part := range []struct {
			text string
			want int
		}{
			{"proxy did not apply the configuration", 2}, {"proxy=edge-2 error=\"regular expression too large\"", 1},
			{"listeners=2 first=default/edge/0 reason=\"in use\"", 1}, {"does not serve some listeners", 1},
		} {
			if got := strings.Count(log.String(), part.text); got != part.want {
				t.Errorf("%d lines with %q, want %d:\n%s", got, part.text, part.want, log.String())
			}
		}
		time.Sleep(time.Second)
		s.report(hostile, "", "refused once more")
		if !strings.Contains(log.String(), "error=\"refused once more\" suppressed=999") {
			t.Errorf("nothing says how many lines were suppressed:\n%s", log.String())
		}
		s.close(hostile)
		s.close(honest)
		s.forgetAll()
	})
}

func TestFailuresOfTheStreamDoNotHideThoseOfTheStateFile(t *testing.T) {
	var log bytes.Buffer
	r := &receiver{client: &Client{Owner: "default/edge", StateFile: t.TempDir() + "/missing/state"}, log: slog.New(slog.NewTextHandler(&log, nil))}
	r.failures.Log(r.log, slog.LevelWarn, "stream", "no configuration from the control plane; connecting again")
	r.unsaved = true
	r.save()
	if !strings.Contains(log.String(), "state file cannot be written") {
		t.Errorf("the log does not name the state file:\n%s", log.String())
	}
}
