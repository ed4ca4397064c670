package resource

import (
	"maps"
	"slices"
	"time"
)

// Collection holds the objects of a cluster as they change, and makes Sets of them. If a new version of an object is
// broken, its last good version stays, as in a Dir. One exception: a ConfigMap's authorities are always those of its
// newest version, since a removed authority must not be trusted any longer. It is for one goroutine at a time.
type Collection struct {
	kinds Kinds
	// lists are the good objects of each kind, in the order of a Set.
	lists map[*Kind][]placed
	// judged are the objects that a Set is not sure of before it is made: broken ones, those with certificates and those
	// with findings. good are the last good ones among them.
	judged map[Key]*Object
	good   map[Key]good

	now func() time.Time
	// last is the time when certificates were judged, next the time when the judgement changes, zero if never.
	last, next time.Time
}

type placed struct {
	key    Key
	object any
}

// NewCollection returns an empty one for objects of some kinds.
func NewCollection(kinds Kinds) *Collection {
	return &Collection{kinds: kinds, lists: make(map[*Kind][]placed), judged: make(map[Key]*Object), good: make(map[Key]good), now: time.Now}
}

// Put adds an object, or another version of it.
func (c *Collection) Put(o *Object) {
	e := &o.entry
	if e.object == nil || e.certified != nil {
		if _, isGood := c.good[e.key]; !isGood {
			if last := c.find(e.key); last != nil {
				c.good[e.key] = good{object: last} // it needed no judgement until now
			}
		}
		c.judged[e.key] = o
		return
	}
	if len(e.findings) > 0 {
		c.judged[e.key] = o
	} else {
		delete(c.judged, e.key)
	}
	delete(c.good, e.key)
	c.place(e.key, e.object)
}

// Remove takes an object out, if it is there.
func (c *Collection) Remove(k Key) {
	delete(c.judged, k)
	delete(c.good, k)
	c.place(k, nil)
}

// Has reports whether there is an object of a kind, be it valid or not.
func (c *Collection) Has(k *Kind) bool {
	if len(c.lists[k]) > 0 {
		return true
	}
	for key := range c.judged {
		if key.Group == k.Group && key.Kind == k.Name {
			return true
		}
	}
	return false
}

// Clear takes all objects of a kind out.
func (c *Collection) Clear(group, name string) {
	delete(c.lists, c.kinds.Find(group, name))
	of := func(k Key) bool { return k.Group == group && k.Kind == name }
	maps.DeleteFunc(c.judged, func(k Key, _ *Object) bool { return of(k) })
	maps.DeleteFunc(c.good, func(k Key, _ good) bool { return of(k) })
}

// Due reports whether another Set would have other findings about certificates, because time has passed.
func (c *Collection) Due() bool {
	now := c.now().Round(0)
	return now.Before(c.last) || !c.next.IsZero() && now.After(c.next)
}

// Set makes a Set of the objects there are. Findings of the caller's are added to it.
func (c *Collection) Set(findings ...Finding) *Set {
	a := &assembly{last: c.good, good: make(map[Key]good, len(c.good)), now: c.now().Round(0), findings: slices.Clone(findings)}
	s := &Set{kinds: c.kinds, Expiries: make(map[Key]Finding), Rejected: make(map[Key]Finding)}
	for k, o := range c.judged {
		a.findings = append(a.findings, o.entry.findings...)
		if o.entry.object != nil && o.entry.certified == nil {
			continue
		}
		if k.Kind == "ConfigMap" && o.entry.object != nil {
			delete(c.good, k)
		}
		a.judge(o.entry, Origin{}, Fields{})
		if g, ok := a.good[k]; ok {
			c.place(k, g.object)
			a.date(s, k, g)
		}
	}
	for k, o := range c.judged {
		i := slices.IndexFunc(o.entry.findings, func(f Finding) bool { return f.Severity == Error })
		if _, served := a.good[k]; o.entry.object == nil && !served && i >= 0 {
			s.Rejected[k] = o.entry.findings[i]
		}
	}
	c.good, c.last, c.next = a.good, a.now, a.next
	for k, list := range c.lists {
		if k != nil && k.Objects != nil {
			k.Objects.fill(s, len(list), func(i int) any { return list[i].object })
		}
	}
	s.Findings = a.findings
	SortFindings(s.Findings)
	return s
}

func (c *Collection) search(k Key) (of *Kind, at int, found bool) {
	of = c.kinds.Find(k.Group, k.Kind)
	list := c.lists[of]
	// Most come in order.
	if n := len(list); n == 0 || compareKeys(list[n-1].key, k) < 0 {
		return of, n, false
	}
	at, found = slices.BinarySearchFunc(list, k, func(p placed, k Key) int { return compareKeys(p.key, k) })
	return of, at, found
}

func (c *Collection) find(k Key) any {
	if of, at, found := c.search(k); found {
		return c.lists[of][at].object
	}
	return nil
}

// place puts an object into its list, or takes it out if it is nil.
func (c *Collection) place(k Key, object any) {
	of, at, found := c.search(k)
	list := c.lists[of]
	switch {
	case object == nil && !found:
		return
	case object == nil:
		list = slices.Delete(list, at, at+1)
	case found:
		list[at].object = object
	default:
		list = slices.Insert(list, at, placed{k, object})
	}
	c.lists[of] = list
}
