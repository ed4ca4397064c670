package feed

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weirmesh/weir/internal/model"
)

// received is a part as a proxy has it, immutable.
type received struct {
	name    string
	version string
	data    []byte
	content *model.Config
	err     error // why data cannot be read
}

// newReceived reads a part. Its version is computed, not believed.
func newReceived(name string, data []byte) *received {
	content, err := decodePart(name, data)
	return &received{name: name, version: hashOf(data), data: data, content: content, err: err}
}

// assembly is the parts that a proxy has, by name.
type assembly struct {
	parts []*received // replaced, never changed
	bytes int         // of the parts' encodings
}

// errTooLarge ends a stream that brings more than is kept.
var errTooLarge = errors.New("the configuration is larger than what a proxy keeps")

// update takes what a response brings. Parts that cannot be read are kept as such, since the server will not send them
// again: the configuration as a whole cannot be applied until they are replaced.
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

// merge puts parts in, in place of those of the same names.
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

// config makes the configuration, in canonical order, and checks it.
func (a *assembly) config() (*model.Config, error) {
	c := &model.Config{}
	n := a.counts()
	c.Listeners = make([]model.Listener, 0, n[0])
	c.Routes = make([]model.Route, 0, n[1])
	c.Splits = make([]model.Split, 0, n[2])
	c.Services = make([]model.Service, 0, n[3])
	c.Certificates = make([]model.Certificate, 0, n[4])
	var errs []error
	for _, p := range a.parts {
		if p.err != nil {
			errs = append(errs, p.err)
			continue
		}
		c.Listeners = append(c.Listeners, p.content.Listeners...)
		c.Routes = append(c.Routes, p.content.Routes...)
		c.Splits = append(c.Splits, p.content.Splits...)
		c.Services = append(c.Services, p.content.Services...)
		c.Certificates = append(c.Certificates, p.content.Certificates...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.Sort()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// counts is how many elements each part of the configuration will have.
func (a *assembly) counts() (n [5]int) {
	for _, p := range a.parts {
		if c := p.content; c != nil {
			n[0] += len(c.Listeners)
			n[1] += len(c.Routes)
			n[2] += len(c.Splits)
			n[3] += len(c.Services)
			n[4] += len(c.Certificates)
		}
	}
	return n
}
