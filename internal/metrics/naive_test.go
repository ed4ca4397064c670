package metrics_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

// store answers from rows that it has, as a Question says.
type store struct {
	rows  []metrics.Traffic
	asked []metrics.Question
	err   error
}

var end = time.Date(2019, 4, 8, 22, 25, 55, 0, time.UTC)

func (s *store) Ask(_ context.Context, q metrics.Question) (metrics.Answer, error) {
	s.asked = append(s.asked, q)
	if s.err != nil {
		return metrics.Answer{}, s.err
	}
	out := metrics.Answer{Time: end, Window: q.Window}
	sums := map[telemetry.EdgeLabels]int{}
	for _, t := range s.rows {
		if (q.At != nil || q.With != nil) && !slices.Contains(q.At, t.At) && !slices.Contains(q.With, t.Peer) {
			continue
		}
		if q.Sum {
			t.EdgeLabels = telemetry.EdgeLabels{At: t.At, Out: t.Out}
			if i, ok := sums[t.EdgeLabels]; ok {
				sum := &out.Traffic[i]
				sum.Success, sum.Failure, sum.Latency = sum.Success+t.Success, sum.Failure+t.Failure, sum.Latency.Plus(t.Latency)
				continue
			}
			sums[t.EdgeLabels] = len(out.Traffic)
		}
		out.Traffic = append(out.Traffic, t)
	}
	return out, nil
}

// observe makes rows of requests.
type observed struct{ *telemetry.Registry }

func (o observed) requests(at telemetry.Side, out bool, peer telemetry.Side, success, failure int, d time.Duration) {
	e := o.Edge(telemetry.EdgeLabels{At: at, Out: out, Peer: peer})
	for i := range success + failure {
		e.Observe(uint32(i), i < success, d)
	}
}

func (o observed) rows() (all []metrics.Traffic) {
	for _, e := range o.Edges() {
		all = append(all, metrics.Traffic{EdgeLabels: e.EdgeLabels, Success: e.Success, Failure: e.Failure, Latency: e.Latency})
	}
	return all
}

func load(t testing.TB, text string) *resource.Set {
	t.Helper()
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Findings) > 0 {
		t.Fatal(set.Findings)
	}
	return set
}

// world is what there is in a test, said twice: as objects, and as what the naive aggregation knows.
type world struct {
	text  strings.Builder
	units []*unit
	// objects are "Kind namespace/name", all there are.
	objects map[string]bool
	// selects are the units of Services.
	selects map[string][]*unit
	spaces  []string
}

// unit is a pod, or a Deployment without pods.
type unit struct {
	kind, namespace, name string
	// in are the objects that it belongs to, top is the topmost.
	in       []string
	top      string
	account  string
	address  string
	workload string
}

func (w *world) is(kind, namespace, name string) string {
	id := kind + " " + namespace + "/" + name
	w.objects[id] = true
	return id
}

func randomWorld(r *rand.Rand) *world {
	w := &world{objects: map[string]bool{}, selects: map[string][]*unit{}, spaces: []string{"a", "b"}}
	put := func(format string, args ...any) { fmt.Fprintf(&w.text, format+"\n---\n", args...) }
	apps := []string{"x", "v", "z"}
	labels := map[*unit]map[string]string{}
	for _, ns := range w.spaces {
		w.is("Namespace", "", ns)
		for i := range 1 + r.IntN(4) {
			app, tier, account := apps[r.IntN(3)], apps[r.IntN(3)], []string{"default", "p", "q"}[r.IntN(3)]
			name := fmt.Sprintf("d%d", i)
			kind := []string{"Deployment", "StatefulSet", "Job", ""}[r.IntN(4)]
			n := r.IntN(4)
			if kind == "" {
				n = 1
			}
			version := map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}[kind]
			template := fmt.Sprintf("{metadata: {labels: {app: %s, tier: %s}}, spec: {serviceAccountName: %s}}", app, tier, account)
			var in []string
			top, owner := "", ""
			if kind != "" {
				top = w.is(kind, ns, name)
				put("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s, labels: {top: %s}}, spec: {template: %s}}", version, kind, name, ns, app, template)
				in = append(in, top)
				owner = fmt.Sprintf("apiVersion: %s, kind: %s, name: %s", version, kind, name)
			}
			if kind == "Deployment" && n > 0 {
				owner = fmt.Sprintf("apiVersion: apps/v1, kind: ReplicaSet, name: %s-r", name)
				in = append(in, w.is("ReplicaSet", ns, name+"-r"))
				put("{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: %s-r, namespace: %s, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: %s, uid: u, controller: true}]}}", name, ns, name)
			}
			made := []*unit{}
			for j := range n {
				u := &unit{kind: "Pod", namespace: ns, name: fmt.Sprintf("%s-%d", name, j), top: top, account: account, address: fmt.Sprintf("10.0.%d.%d", len(w.units), r.IntN(2))}
				if r.IntN(6) == 0 {
					u.address = "10.9.9.9" // that of the node
				}
				self, node := w.is("Pod", ns, u.name), w.is("Node", "", []string{"n1", "n2"}[r.IntN(2)])
				u.in = append(slices.Clone(in), self, node)
				if u.top == "" {
					u.top = self
				}
				owners := ""
				if owner != "" {
					owners = ", ownerReferences: [{" + owner + ", uid: u, controller: true}]"
				}
				put("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s, tier: %s}%s}, spec: {nodeName: %s, serviceAccountName: %s}, status: {podIP: %s}}",
					u.name, ns, app, tier, owners, node[len("Node /"):], account, u.address)
				made = append(made, u)
			}
			if n == 0 {
				made = append(made, &unit{kind: kind, namespace: ns, name: name, in: in, top: top, account: account})
			}
			for _, u := range made {
				u.workload = u.name
				u.in = append(u.in, "Namespace /"+ns)
				labels[u] = map[string]string{"app": app, "tier": tier}
				w.units = append(w.units, u)
			}
		}
		for _, s := range [][2]string{{"app", "x"}, {"app", "v"}, {"tier", "x"}, {"no", "one"}} {
			if r.IntN(2) == 0 {
				continue
			}
			name := "s-" + s[0] + "-" + s[1]
			id := w.is("Service", ns, name)
			put("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s, labels: {l: '1'}}, spec: {selector: {%s: %s}, ports: [{port: 80}]}}", name, ns, s[0], s[1])
			for _, u := range w.units {
				if u.namespace == ns && labels[u][s[0]] == s[1] {
					u.in = append(u.in, id)
					w.selects[id] = append(w.selects[id], u)
				}
			}
		}
	}
	return w
}

// where is what the naive aggregation knows of a side: whether it is the same as another (id), what it may be, what it belongs to.
type where struct {
	id, namespace, top string
	in                 []string
	units              []*unit
}

func (w *world) where(s telemetry.Side) *where {
	one := func(u *unit) *where {
		return &where{u.kind + u.namespace + u.name, u.namespace, u.top, u.in, []*unit{u}}
	}
	find := func(f func(*unit) bool) (out []*unit) {
		for _, u := range w.units {
			if f(u) {
				out = append(out, u)
			}
		}
		return out
	}
	space := []string{"Namespace /" + s.Namespace}
	switch s.Kind {
	case "Pod", "Workload":
		named := find(func(u *unit) bool { return u.namespace == s.Namespace && u.name == s.Name })
		for _, u := range named {
			if u.kind == "Pod" {
				return one(u)
			}
		}
		if len(named) > 0 {
			return one(named[0])
		}
	case "Address":
		if u := find(func(u *unit) bool { return u.address == s.Name }); len(u) == 1 {
			return one(u[0])
		}
	case "Service":
		id := "Service " + s.Namespace + "/" + s.Name
		if !w.objects[id] {
			return nil
		}
		selected := w.selects[id]
		if len(selected) == 1 && selected[0].kind != "Pod" {
			return one(selected[0])
		}
		return &where{id, s.Namespace, id, append(space, id), selected}
	case "ServiceAccount":
		users := find(func(u *unit) bool { return u.namespace == s.Namespace && u.account == s.Name })
		if len(users) == 0 {
			return nil
		}
		if len(users) == 1 {
			return one(users[0])
		}
		p := &where{s.String(), s.Namespace, users[0].top, space, users}
		for _, u := range users {
			if u.top != p.top {
				p.top = ""
				return p
			}
		}
		p.in = nil
		for _, o := range users[0].in {
			if !slices.ContainsFunc(users, func(u *unit) bool { return !slices.Contains(u.in, o) }) {
				p.in = append(p.in, o)
			}
		}
		return p
	}
	return nil
}

// with is who a side is in terms of a kind.
func (w *world) with(s telemetry.Side, kind string) (out []string) {
	p := w.where(s)
	if p == nil {
		switch {
		case s.Namespace != "" && kind == "Namespace" && s.Kind != "Gateway":
			return []string{"Namespace /" + s.Namespace}
		case s.Kind == "Pod" || s.Kind == "Service" || s.Kind == "Gateway" || s.Kind == "Node":
			return []string{s.Kind + " " + s.Namespace + "/" + s.Name}
		case s.Kind == "Address":
			return []string{" /"}
		case s.Namespace != "":
			return []string{" " + s.Namespace + "/"}
		}
		return []string{s.Kind + " /"}
	}
	for _, o := range p.in {
		if strings.HasPrefix(o, kind+" ") {
			out = append(out, o)
		}
	}
	if out == nil && p.top != "" {
		return []string{p.top}
	}
	if out == nil {
		return []string{" " + p.namespace + "/"}
	}
	return out
}

// observedAt reports whether anybody observed traffic of a direction at what a side is or may be.
func (w *world) observedAt(p *where, out bool, all []metrics.Traffic) bool {
	for _, t := range all {
		at := w.where(t.At)
		if at == nil || t.Out != out || t.Success+t.Failure == 0 {
			continue
		}
		if at.id == p.id || slices.ContainsFunc(p.units, func(u *unit) bool { return at.id == u.kind+u.namespace+u.name }) {
			return true
		}
	}
	return false
}

// total is what an object received, as text.
func (w *world) total(o string, all []metrics.Traffic) (sum metrics.Traffic) {
	for _, t := range all {
		at, peer := w.where(t.At), w.where(t.Peer)
		if at != nil && !t.Out && slices.Contains(at.in, o) || peer != nil && t.Out && slices.Contains(peer.in, o) && !w.observedAt(peer, false, all) {
			sum.Success, sum.Failure, sum.Latency = sum.Success+t.Success, sum.Failure+t.Failure, sum.Latency.Plus(t.Latency)
		}
	}
	return sum
}

// edges are those of an object, by direction and other side.
func (w *world) edges(o, kind string, all []metrics.Traffic) map[string]metrics.Traffic {
	out := map[string]metrics.Traffic{}
	add := func(direction string, s telemetry.Side, t metrics.Traffic) {
		for _, other := range w.with(s, kind) {
			sum := out[direction+" "+other]
			sum.Success, sum.Failure, sum.Latency = sum.Success+t.Success, sum.Failure+t.Failure, sum.Latency.Plus(t.Latency)
			out[direction+" "+other] = sum
		}
	}
	for _, t := range all {
		if t.Success+t.Failure == 0 {
			continue
		}
		at, peer := w.where(t.At), w.where(t.Peer)
		direction, inverse := "from", "to"
		if t.Out {
			direction, inverse = "to", "from"
		}
		if at != nil && slices.Contains(at.in, o) {
			add(direction, t.Peer, t)
		}
		if peer != nil && slices.Contains(peer.in, o) && !w.observedAt(peer, !t.Out, all) {
			add(inverse, t.At, t)
		}
	}
	return out
}

func measured(t metrics.Traffic) string {
	up := func(q float64) time.Duration {
		return (t.Latency.Quantile(q) + time.Microsecond - 1) / time.Microsecond * time.Microsecond
	}
	return fmt.Sprint(api.Measured{Success: t.Success, Failure: t.Failure, P50: up(0.5), P90: up(0.9), P99: up(0.99)})
}
