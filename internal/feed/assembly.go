package feed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weirmesh/weir/internal/model"
)

// received is a part as a proxy has it, immutable.
type received struct {
	name    string
	version string
	data    []byte
	list    int           // in lists, the one whose elements content has
	content *model.Config // with err: what is served in the part's place, if that is known
	err     error         // why data cannot be read
	good    *received     // the part when it was last readable; nil if it never was, or if err is nil
}

// usable is the content that is served for the part, nil if there is none.
func (p *received) usable() *model.Config {
	if p.content == nil && p.good != nil {
		return p.good.content
	}
	return p.content
}

// instead says what is served in place of a part that cannot be read.
func (p *received) instead() string {
	switch {
	case p.content != nil:
		return "it allows nothing"
	case p.good != nil:
		return "it stays as it was"
	}
	return "it is left out"
}

// newReceived reads a part. Its version is computed, not believed.
func newReceived(name string, data []byte) *received {
	content, err := decodePart(name, data)
	if err != nil {
		content = closed(name, data)
	}
	return &received{name: name, version: hashOf(data), data: data, list: listOf(name), content: content, err: err}
}

// closed is what stands for a part with policies that cannot be read, nil for any other part. It governs the workloads that
// they name, or all, and allows nothing: without a policy a workload may be open to everybody, and with the one of before
// to more clients than now.
func closed(name string, data []byte) *model.Config {
	if i := listOf(name); i < 0 || lists[i].Element() != "policy" {
		return nil
	}
	var known struct {
		Policies []struct {
			Ref     model.Ref      `json:"ref"`
			Targets []model.Target `json:"targets"`
		} `json:"policies"`
	}
	void := model.Policy{Ref: partRef(name), Targets: []model.Target{{}}, Traffic: model.TrafficAny, Void: "this release cannot read it"}
	c := &model.Config{}
	if json.Unmarshal(data, &known) == nil {
		for _, p := range known.Policies {
			v := void
			if p.Ref.Kind != "" && p.Ref.Name != "" {
				v.Ref = p.Ref
			}
			if len(p.Targets) > 0 {
				v.Targets = p.Targets
			}
			c.Policies = append(c.Policies, v)
		}
	}
	if c.Policies == nil {
		c.Policies = []model.Policy{void}
	}
	return c
}

// assembly is the parts that a proxy has, by name.
type assembly struct {
	parts []*received // replaced, never changed
	bytes int         // of the parts' encodings
}

// errTooLarge ends a stream that brings more than is kept.
var errTooLarge = errors.New("the configuration is larger than what a proxy keeps")

// update takes the contents of a response. Unreadable parts are kept, since the server will not send them again,
// together with their last readable version, which is used instead.
func (a *assembly) update(r *discovery.DeltaDiscoveryResponse, limit int) error {
	fresh := make([]*received, 0, len(r.Resources)+len(r.RemovedResources))
	for _, x := range r.Resources {
		if x.GetResource().GetTypeUrl() != typeURL {
			return fmt.Errorf("resource %q has the type %q", printable(x.GetName(), maxError), printable(x.GetResource().GetTypeUrl(), maxError))
		}
		fresh = append(fresh, newReceived(x.Name, x.Resource.Value))
	}
	for _, name := range r.RemovedResources {
		fresh = append(fresh, &received{name: name}) // without content and error: gone
	}
	return a.merge(fresh, limit)
}

// merge adds parts, in place of those of the same names.
func (a *assembly) merge(fresh []*received, limit int) error {
	slices.SortStableFunc(fresh, func(a, b *received) int { return cmp.Compare(a.name, b.name) })
	out := make([]*received, 0, len(a.parts)+len(fresh))
	size, i := 0, 0
	keep := func(p *received) {
		if p.content != nil || p.err != nil {
			out = append(out, p)
			size += len(p.name) + len(p.data)
		}
	}
	for j, p := range fresh {
		if j+1 < len(fresh) && fresh[j+1].name == p.name {
			continue // the last one counts
		}
		for ; i < len(a.parts) && a.parts[i].name < p.name; i++ {
			keep(a.parts[i])
		}
		if i < len(a.parts) && a.parts[i].name == p.name {
			if before := a.parts[i]; p.err != nil {
				if p.good = before; before.err != nil {
					p.good = before.good
				}
			}
			i++
		}
		keep(p)
	}
	for ; i < len(a.parts); i++ {
		keep(a.parts[i])
	}
	if size > limit {
		return fmt.Errorf("%w: %d bytes, the limit is %d", errTooLarge, size, limit)
	}
	a.parts, a.bytes = out, size
	return nil
}

// versions returns the version of each part.
func (a *assembly) versions() map[string]string {
	out := make(map[string]string, len(a.parts))
	for _, p := range a.parts {
		out[p.name] = p.version
	}
	return out
}

// version is that of the configuration that the parts make.
func (a *assembly) version() string {
	return versionOf(a.parts, func(p *received) (string, string) { return p.name, p.version })
}

// config makes the configuration, in canonical order and valid, and returns what it leaves out: unreadable parts, for
// example from a newer control plane, which keep their last readable version, and invalid ones. One part holds up no
// other.
func (a *assembly) config() (*model.Config, []model.Omission) {
	contents := make([][]*model.Config, len(lists)) // the parts of each list, which follow each other
	for i := 0; i < len(a.parts); {
		n := 1
		for i+n < len(a.parts) && a.parts[i+n].list == a.parts[i].list {
			n++
		}
		if list := a.parts[i].list; list >= 0 {
			contents[list] = make([]*model.Config, 0, n)
		}
		i += n
	}
	var left []model.Omission
	for _, p := range a.parts {
		if p.err != nil {
			left = append(left, model.Omission{Ref: partRef(p.name), Reason: fmt.Sprintf("%s; %s", printable(p.err.Error(), maxError), p.instead())})
		}
		if content := p.usable(); content != nil {
			contents[p.list] = append(contents[p.list], content)
		}
	}
	c := &model.Config{}
	for i, l := range lists {
		l.Concat(c, contents[i])
	}
	c.Sort()
	c, more := c.Sound()
	return c, append(left, more...)
}

// partRef is the object that a part of that name is about, as far as the name contains it.
func partRef(name string) model.Ref {
	if parts := strings.SplitN(name, "/", 4); len(parts) == 4 && parts[0] == "route" {
		object, field, _ := strings.Cut(parts[3], "#")
		return model.Ref{Kind: printable(parts[1], 64), Namespace: printable(parts[2], 253), Name: printable(object, 253), Field: printable(field, maxError)}
	}
	kind, name, _ := strings.Cut(name, "/")
	return model.Ref{Kind: printable(kind, 64), Name: printable(name, maxError)}
}
