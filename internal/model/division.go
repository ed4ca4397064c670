package model

import (
	"maps"
	"slices"
)

// Owners returns who has listeners, sorted: all Listener.Owner that are not empty.
func (c *Config) Owners() []Owner {
	seen := map[Owner]bool{}
	for i := range c.Listeners {
		if owner := c.Listeners[i].Owner; owner != "" {
			seen[owner] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Of returns what the proxies of one owner serve: its listeners, the routes attached to them, with no other
// attachments, and the splits, services and certificates that these need. An owner without listeners has an empty
// configuration. c must be in the form that Merge returns. The result has that form, too, is valid if c is, and shares
// memory with c. For several owners ByOwner is quicker.
func (c *Config) Of(owner Owner) *Config {
	return c.only(func(l *Listener) bool { return l.Owner == owner })
}

// Without returns c without the listeners of some owners, without the attachments to them, and without everything
// that no other listener needs. c and the result are as described at Of.
func (c *Config) Without(left func(Owner) bool) *Config {
	return c.only(func(l *Listener) bool { return !left(l.Owner) })
}

// only returns the part of c that the wanted listeners need.
func (c *Config) only(wanted func(*Listener) bool) *Config {
	if part := c.split(wanted, func(*Listener) Owner { return "" })[""]; part != nil {
		return part
	}
	return &Config{}
}

// ByOwner returns the result of Of for each of Owners. Its time grows with the size of its result, not with the number
// of owners. Listeners without an owner, and what only they need, are in none of the parts.
func (c *Config) ByOwner() map[Owner]*Config {
	return c.split(func(l *Listener) bool { return l.Owner != "" }, func(l *Listener) Owner { return l.Owner })
}

// split makes a part of the wanted listeners of each key.
func (c *Config) split(wanted func(*Listener) bool, key func(*Listener) Owner) map[Owner]*Config {
	d := division{wanted: wanted, key: key, keyOf: map[string]Owner{}, parts: map[Owner]*Config{}}
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
	key    func(*Listener) Owner
	keyOf  map[string]Owner // by the name of a wanted listener
	parts  map[Owner]*Config
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
	var done []Owner // keys; few
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
