package model

import (
	"maps"
	"slices"
)

// Gateways returns the gateways that have listeners, sorted: all Listener.Gateway that are not empty.
func (c *Config) Gateways() []GatewayKey {
	seen := map[GatewayKey]bool{}
	for _, l := range c.Listeners {
		if l.Gateway != "" {
			seen[l.Gateway] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Of returns what the proxies of one gateway serve: its listeners, the routes attached to them, with no other
// attachments, and the splits, services and certificates that these need. A gateway without listeners has an empty
// configuration. c must be in the form that Merge returns. The result has that form, too, is valid if c is, and shares
// memory with c. For several gateways Split is quicker.
func (c *Config) Of(gateway GatewayKey) *Config {
	return c.only(func(l *Listener) bool { return l.Gateway == gateway })
}

// Without returns c without the listeners of some gateways, without the attachments to them, and without everything
// that no other listener needs. c and the result are as described at Of.
func (c *Config) Without(left func(GatewayKey) bool) *Config {
	return c.only(func(l *Listener) bool { return !left(l.Gateway) })
}

// only returns the part of c that the wanted listeners need.
func (c *Config) only(wanted func(*Listener) bool) *Config {
	if part := c.split(wanted, func(*Listener) GatewayKey { return "" })[""]; part != nil {
		return part
	}
	return &Config{}
}

// ByGateway returns the result of Of for each of Gateways. Its time grows with the size of its result, not with the number
// of gateways. Listeners without a gateway, and what only they need, are in none of the parts.
func (c *Config) ByGateway() map[GatewayKey]*Config {
	return c.split(func(l *Listener) bool { return l.Gateway != "" }, func(l *Listener) GatewayKey { return l.Gateway })
}

// split makes a part of the wanted listeners of each key.
func (c *Config) split(wanted func(*Listener) bool, key func(*Listener) GatewayKey) map[GatewayKey]*Config {
	parts := map[GatewayKey]*Config{}
	keyOf := map[string]GatewayKey{} // by the name of a wanted listener
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if !wanted(l) {
			continue
		}
		k := key(l)
		keyOf[l.Name] = k
		part := parts[k]
		if part == nil {
			part = &Config{}
			parts[k] = part
		}
		part.Listeners = append(part.Listeners, *l)
	}
	for i := range c.Routes {
		splitRoute(&c.Routes[i], keyOf, parts)
	}
	x := newSplitIndex(c)
	for _, part := range parts {
		x.complete(part)
	}
	return parts
}

// splitRoute gives each part whose listeners a route is attached to the route with the attachments there.
func splitRoute(r *Route, keyOf map[string]GatewayKey, parts map[GatewayKey]*Config) {
	var done []GatewayKey // keys; few
	for _, a := range r.Attachments {
		key, ok := keyOf[a.Listener]
		if !ok || slices.Contains(done, key) {
			continue
		}
		done = append(done, key)
		elsewhere := func(a Attachment) bool { k, ok := keyOf[a.Listener]; return !ok || k != key }
		cut := *r
		if slices.ContainsFunc(r.Attachments, elsewhere) {
			cut.Attachments = slices.DeleteFunc(slices.Clone(r.Attachments), elsewhere)
		}
		parts[key].Routes = append(parts[key].Routes, cut)
	}
}

// splitIndex finds what routes and listeners need. It holds indices into the configuration.
type splitIndex struct {
	from                   *Config
	services, certificates map[string]int
	splits                 map[string][]int // by root
}

func newSplitIndex(c *Config) *splitIndex {
	x := &splitIndex{
		from: c, services: make(map[string]int, len(c.Services)), certificates: make(map[string]int, len(c.Certificates)), splits: map[string][]int{},
	}
	for i := range c.Services {
		x.services[c.Services[i].Name] = i
	}
	for i := range c.Certificates {
		x.certificates[c.Certificates[i].Name] = i
	}
	for i := range c.Splits {
		x.splits[c.Splits[i].Root] = append(x.splits[c.Splits[i].Root], i)
	}
	return x
}

// complete adds to a configuration of listeners and routes the splits, services and certificates it needs.
func (x *splitIndex) complete(part *Config) {
	var splits []int
	for name := range part.direct() {
		splits = append(splits, x.splits[name]...)
	}
	part.Splits = pick(x.from.Splits, splits)
	part.Services = pick(x.from.Services, places(part.Presented(), x.services))
	certificates := part.certificates()
	part.Certificates = pick(x.from.Certificates, places(certificates, x.certificates))
}

// places returns where the named things are; those that are nowhere are left out.
func places[T any](names map[string]T, at map[string]int) []int {
	var out []int
	for name := range names {
		if i, ok := at[name]; ok {
			out = append(out, i)
		}
	}
	return out
}

// pick returns the elements at the places, each once and in their old order.
func pick[T any](all []T, places []int) []T {
	slices.Sort(places)
	places = slices.Compact(places)
	if len(places) == 0 {
		return nil
	}
	out := make([]T, len(places))
	for i, place := range places {
		out[i] = all[place]
	}
	return out
}
