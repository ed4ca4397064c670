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
	d := division{wanted: wanted, key: key, keyOf: map[string]GatewayKey{}, parts: map[GatewayKey]*Config{}}
	for _, l := range Lists {
		l.divide(&d, c)
	}
	for _, l := range slices.Backward(Lists[:]) {
		l.follow(c, d.parts)
	}
	return d.parts
}

// division divides a configuration into parts.
type division struct {
	wanted func(*Listener) bool
	key    func(*Listener) GatewayKey
	keyOf  map[string]GatewayKey // by the name of a wanted listener
	parts  map[GatewayKey]*Config
}

// listeners gives each part its listeners.
func (d *division) listeners(all []Listener) {
	for i := range all {
		l := &all[i]
		if !d.wanted(l) {
			continue
		}
		k := d.key(l)
		d.keyOf[l.Name] = k
		part := d.parts[k]
		if part == nil {
			part = &Config{}
			d.parts[k] = part
		}
		part.Listeners = append(part.Listeners, *l)
	}
}

// routes gives each part whose listeners a route is attached to the route with the attachments there.
func (d *division) routes(all []Route) {
	for i := range all {
		d.route(&all[i])
	}
}

func (d *division) route(r *Route) {
	var done []GatewayKey // keys; few
	for _, a := range r.Attachments {
		key, ok := d.keyOf[a.Listener]
		if !ok || slices.Contains(done, key) {
			continue
		}
		done = append(done, key)
		elsewhere := func(a Attachment) bool { k, ok := d.keyOf[a.Listener]; return !ok || k != key }
		cut := *r
		if slices.ContainsFunc(r.Attachments, elsewhere) {
			cut.Attachments = slices.DeleteFunc(slices.Clone(r.Attachments), elsewhere)
		}
		d.parts[key].Routes = append(d.parts[key].Routes, cut)
	}
}
