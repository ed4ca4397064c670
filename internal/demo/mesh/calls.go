package mesh

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
)

// state is what is shown.
type state struct {
	elapsed time.Duration
	rows    []row
	// edited is when the role was edited, zero before.
	edited time.Duration
	// wrong are calls that were answered otherwise than the roles say.
	wrong int
	first string // of these
}

// row is one call of one client.
type row struct {
	from, method, path string
	status             int
	verdict            policy.Reason
	by                 string
	allowed, denied    int
}

// widened is the role's binding with another client.
const widened = `- kind: Deployment
  name: web
- kind: Deployment
  name: report
`

// run makes the calls, shows what becomes of them, and edits the role after a while.
func (d *demo) run(ctx context.Context, v *view) error {
	s := &state{}
	for _, from := range clients {
		for _, c := range calls {
			s.rows = append(s.rows, row{from: from, method: c.method, path: c.path})
		}
	}
	started, shown := time.Now(), time.Duration(0)
	tick := time.NewTicker(round)
	defer tick.Stop()
	for ctx.Err() == nil {
		for i := range s.rows {
			if err := d.call(ctx, s, &s.rows[i]); err != nil {
				if ctx.Err() != nil {
					break
				}
				return err
			}
		}
		s.elapsed = time.Since(started)
		d.seen(s)
		if s.elapsed-shown >= time.Second {
			v.show(s)
			shown = s.elapsed
		}
		if s.edited == 0 && s.elapsed >= patience {
			if err := d.edit(); err != nil {
				return err
			}
			s.edited = s.elapsed
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	v.summary(s)
	if s.wrong > 0 {
		return fmt.Errorf("%d calls were answered otherwise than the roles say, the first: %s", s.wrong, s.first)
	}
	return nil
}

// edit gives the role to another client.
func (d *demo) edit() error {
	files, err := Manifests()
	if err != nil {
		return err
	}
	const before = "- kind: Deployment\n  name: web\n"
	text := strings.Replace(files[roleFile], before, widened, 1)
	return d.write(roleFile, text)
}

// call makes one call, and holds the answer to what the roles say at that time.
func (d *demo) call(ctx context.Context, s *state, r *row) error {
	before, _ := d.judge(r)
	var client *http.Client
	for _, c := range d.sidecars {
		if c.name == r.from {
			client = c.client
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, "http://"+server+"."+namespace+r.path, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if err != nil {
		return err
	}
	after, by := d.judge(r)
	r.status, r.verdict, r.by = answer.StatusCode, after, by
	passed := answer.StatusCode != http.StatusForbidden
	if passed {
		r.allowed++
	} else {
		r.denied++
	}
	if before == after && passed != after.Passes() { // else the role changed meanwhile
		if s.wrong++; s.wrong == 1 {
			s.first = fmt.Sprintf("%s %s of %s: %d, but %s", r.method, r.path, r.from, answer.StatusCode, after)
		}
	}
	return nil
}

// judge says by the configuration of now what is to become of a call, and which rule allows it.
func (d *demo) judge(r *row) (reason policy.Reason, by string) {
	d.mu.Lock()
	config := d.config
	d.mu.Unlock()
	w := config.Workload(namespace + "/Deployment/" + server)
	if w == nil {
		return policy.Ungoverned, ""
	}
	peer := &policy.Peer{
		ID:        spiffe.Scheme + access.DefaultTrustDomain + "/ns/" + namespace + "/sa/" + r.from,
		Namespace: namespace, Account: r.from, Pod: r.from, Owners: []policy.Owner{{Kind: "Deployment", Name: r.from}},
	}
	v := policy.Compile(w, config.Policies).Subject(peer, podPort).Judge(&policy.Request{Method: r.method, Path: r.path})
	if v.Policy == nil {
		return v.Reason, ""
	}
	return v.Reason, name(v.Policy.Ref) + " by " + name(v.Policy.Binding)
}

func name(r model.Ref) string { return r.Kind + " " + r.Name }
