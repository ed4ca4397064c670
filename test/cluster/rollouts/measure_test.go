package rollouts

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// measure is the way to the API server of a controller of Rollouts. It counts its writes, and sees for how long the
// controller has known of the approval of a step when it sends what it decided.
type measure struct {
	to http.RoundTripper

	mu       sync.Mutex
	writes   map[string]int       // by method and resource
	approved map[string]time.Time // the arrival of the approval, by the path of the Rollout's status
	own      []time.Duration
}

// measured is what was measured so far.
type measured struct {
	Writes map[string]int
	// Own is for how long each approval was known when its decision was sent, the shortest first.
	Own []time.Duration
	// Peak is how many bytes were resident at most.
	Peak int64
}

func (m *measure) so() measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	return measured{Writes: maps.Clone(m.writes), Own: slices.Sorted(slices.Values(m.own))}
}

func (m *measure) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		m.write(r)
		return m.to.RoundTrip(r)
	}
	resp, err := m.to.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/rollouts") {
		resp.Body = &approvalWatch{ReadCloser: resp.Body, to: m, path: strings.TrimSuffix(r.URL.Path, "/rollouts")}
	}
	return resp, err
}

func (m *measure) write(r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	what := r.Method
	if at := slices.Index(parts, "namespaces"); at >= 0 && len(parts) > at+2 {
		if what += " " + parts[at+2]; len(parts) > at+4 {
			what += "/" + parts[at+4]
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes[what]++
	if at, waits := m.approved[r.URL.Path]; waits && what == "PUT rollouts/status" {
		m.own = append(m.own, time.Since(at))
		delete(m.approved, r.URL.Path)
	}
}

// approvalWatch is a watch of Rollouts in which approvals of steps are noted as they are read. An event is a line of JSON.
type approvalWatch struct {
	io.ReadCloser
	to   *measure
	path string // of the API's group and version
	rest []byte
}

func (a *approvalWatch) Read(p []byte) (n int, err error) {
	n, err = a.ReadCloser.Read(p)
	a.rest = append(a.rest, p[:n]...)
	for {
		end := bytes.IndexByte(a.rest, '\n')
		if end < 0 {
			return n, err
		}
		if bytes.Contains(a.rest[:end], []byte(`"currentStepState":"StepReady"`)) {
			a.note(a.rest[:end])
		}
		a.rest = a.rest[end+1:]
	}
}

func (a *approvalWatch) note(line []byte) {
	var event struct {
		Object struct {
			Metadata struct{ Name, Namespace string }
			Status   struct{ CurrentStepState string }
		}
	}
	if json.Unmarshal(line, &event) != nil || event.Object.Status.CurrentStepState != "StepReady" {
		return
	}
	path := a.path + "/namespaces/" + event.Object.Metadata.Namespace + "/rollouts/" + event.Object.Metadata.Name + "/status"
	a.to.mu.Lock()
	defer a.to.mu.Unlock()
	a.to.approved[path] = time.Now()
}
