package model

import (
	"cmp"
	"iter"
	"slices"
)

// List is one of the lists of a configuration, such as Config.Routes, for code that treats all of them alike. A list is
// a field of Config and a row of Lists; merging, pruning, comparing, validating and dividing go over the rows, and so do
// the feed and the metrics.
type List interface {
	// Element is what an element is called: "route". Metrics and the feed's parts have this name.
	Element() string
	// Len is the number of elements.
	Len(c *Config) int
	// Equal is Config.Equal for this list alone.
	Equal(a, b *Config) bool
	// Concat makes the list that of several configurations, one behind the other. It is never nil then.
	Concat(c *Config, of []*Config)
	// Pieces yields, in the list's order, what stands together: each run of elements with one key, as a configuration
	// of nothing else that shares memory with c. The yielded value is only valid until the next one.
	Pieces(c *Config) iter.Seq[*Config]
	// AppendKey appends the key of the first element, which there must be: its name, or "KIND/NAMESPACE/NAME" of its
	// reference, with "#FIELD" if the reference has a field.
	AppendKey(b []byte, c *Config) []byte

	// Share gives c the list of from, if the two are equal: what is the same stays the same in memory.
	Share(c, from *Config)

	sort(c *Config)
	merge(out *Config, configs []Config, accepted *listenerSet)
	prune(c *Config)
	divide(d *division, c *Config)
	follow(c *Config, parts map[Owner]*Config)
	validate(v *validator, c *Config)
	sound(s *sounder, out, c *Config)
}

// Lists are all lists of a configuration. Each comes after those whose elements its own refer to.
var Lists = [...]List{
	&list[Certificate]{
		element: "certificate",
		of:      func(c *Config) *[]Certificate { return &c.Certificates },
		name:    func(x *Certificate) string { return x.Name },
		compare: func(a, b Certificate) int { return cmp.Compare(a.Name, b.Name) },
		keep:    keepFirst[Certificate],
		used:    func(c *Config) names { return c.usedCertificates() },
		check:   (*validator).certificate,
		mend:    (*sounder).certificate,
	},
	&list[Service]{
		element: "service",
		of:      func(c *Config) *[]Service { return &c.Services },
		name:    func(x *Service) string { return x.Name },
		compare: func(a, b Service) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Extends, b.Extends))
		},
		inside: sortEndpoints,
		keep:   keepServices,
		used:   func(c *Config) names { return c.usedServices() },
		check:  (*validator).service,
		mend:   (*sounder).service,
	},
	&list[Listener]{
		element: "listener",
		of:      func(c *Config) *[]Listener { return &c.Listeners },
		name:    func(x *Listener) string { return x.Name },
		compare: func(a, b Listener) int { return cmp.Compare(a.Name, b.Name) },
		keep:    keepListeners,
		deal:    (*division).listeners,
		check:   (*validator).listed,
		mend:    (*sounder).listener,
	},
	&list[Route]{
		element: "route",
		of:      func(c *Config) *[]Route { return &c.Routes },
		ref:     func(x *Route) *Ref { return &x.Ref },
		compare: compareRoutes,
		inside:  sortAttachments,
		keep:    keepRoutes,
		deal:    (*division).routes,
		check:   (*validator).route,
		mend:    (*sounder).route,
	},
	&list[Split]{
		element: "split",
		of:      func(c *Config) *[]Split { return &c.Splits },
		name:    func(x *Split) string { return x.Root },
		compare: func(a, b Split) int { return cmp.Compare(a.Root, b.Root) },
		keep:    keepAll[Split],
		used:    func(c *Config) names { return c.direct() },
		check:   (*validator).split,
		mend:    (*sounder).split,
	},
	&list[Workload]{
		element: "workload",
		of:      func(c *Config) *[]Workload { return &c.Workloads },
		ref:     func(x *Workload) *Ref { return &x.Ref },
		compare: func(a, b Workload) int { return a.Ref.Compare(b.Ref) },
		keep:    keepAll[Workload],
		deal:    (*division).workloads,
		check:   (*validator).workload,
		mend:    (*sounder).workload,
	},
	&list[Policy]{
		element: "policy",
		of:      func(c *Config) *[]Policy { return &c.Policies },
		ref:     func(x *Policy) *Ref { return &x.Ref },
		compare: comparePolicies,
		keep:    keepAll[Policy],
		deal:    (*division).policies,
		check:   (*validator).policy,
		mend:    (*sounder).policy,
	},
}

// list is a row of Lists.
type list[T any] struct {
	element string
	of      func(*Config) *[]T
	// name or ref is the key of an element. Elements with one key stand together, and the feed sends them together.
	name func(*T) string
	ref  func(*T) *Ref
	// compare is the canonical order; it agrees with the key. Elements that it calls equal keep their order.
	compare func(a, b T) int
	// inside, if there is one, puts into order what is inside of the elements. It does not change its argument.
	inside func([]T) []T
	// keep is Merge for this list: what stays of that of each configuration, given the listeners that stay.
	keep func(l *list[T], all [][]T, accepted *listenerSet) []T
	// used are the names of the elements that the rest of a configuration refers to. The others are of no use: Prune
	// drops them, and a part of the configuration has those that it uses. Lists with a deal and lists behind this one
	// are complete when it is called.
	used func(*Config) names
	// deal gives elements to the parts of a configuration that they belong to by themselves. A row has either it or used.
	deal func(d *division, all []T)
	// check validates an element after everything that it refers to.
	check func(v *validator, x *T)
	// mend appends an element to out as far as it can be served; see Sound.
	mend func(s *sounder, out *Config, x T)
}

func (l *list[T]) Element() string { return l.element }

func (l *list[T]) Len(c *Config) int { return len(*l.of(c)) }

func (l *list[T]) Equal(a, b *Config) bool { return sameSlice(*l.of(a), *l.of(b)) }

func (l *list[T]) Share(c, from *Config) {
	if l.Equal(c, from) {
		*l.of(c) = *l.of(from)
	}
}

func (l *list[T]) Concat(c *Config, of []*Config) {
	n := 0
	for _, from := range of {
		n += len(*l.of(from))
	}
	all := make([]T, 0, n)
	for _, from := range of {
		all = append(all, *l.of(from)...)
	}
	*l.of(c) = all
}

func (l *list[T]) Pieces(c *Config) iter.Seq[*Config] {
	return func(yield func(*Config) bool) {
		var piece Config
		s, out := *l.of(c), l.of(&piece)
		for from, i := 0, 1; i <= len(s); i++ {
			if i < len(s) && l.alike(&s[from], &s[i]) {
				continue
			}
			if *out = s[from:i:i]; !yield(&piece) {
				return
			}
			from = i
		}
	}
}

// alike is true for elements with one key.
func (l *list[T]) alike(a, b *T) bool {
	if l.name != nil {
		return l.name(a) == l.name(b)
	}
	return *l.ref(a) == *l.ref(b)
}

func (l *list[T]) AppendKey(b []byte, c *Config) []byte {
	first := &(*l.of(c))[0]
	if l.name != nil {
		return append(b, l.name(first)...)
	}
	r := l.ref(first)
	b = append(append(b, r.Kind...), '/')
	b = append(append(append(b, r.Namespace...), '/'), r.Name...)
	if r.Field != "" {
		b = append(append(b, '#'), r.Field...)
	}
	return b
}

func (l *list[T]) sort(c *Config) {
	all := l.of(c)
	if l.inside != nil {
		*all = l.inside(*all)
	}
	*all = sorted(*all, l.compare)
}

func (l *list[T]) merge(out *Config, configs []Config, accepted *listenerSet) {
	all := make([][]T, len(configs))
	for i := range configs {
		all[i] = *l.of(&configs[i])
	}
	*l.of(out) = l.keep(l, all, accepted)
}

// keepAll keeps all elements, those of an earlier configuration first.
func keepAll[T any](_ *list[T], all [][]T, _ *listenerSet) []T {
	var out []T
	for _, s := range all {
		out = append(out, s...)
	}
	return out
}

// keepFirst keeps the first element of each name.
func keepFirst[T any](l *list[T], all [][]T, _ *listenerSet) []T {
	var out []T
	have := map[string]bool{}
	for _, s := range all {
		for i := range s {
			if name := l.name(&s[i]); !have[name] {
				have[name] = true
				out = append(out, s[i])
			}
		}
	}
	return out
}

func (l *list[T]) prune(c *Config) {
	if l.used == nil {
		return
	}
	used, all := l.used(c), l.of(c)
	out := slices.Clone(*all)
	n := 0
	for i := range out {
		if used.has(l.name(&out[i])) {
			out[n] = out[i]
			n++
		}
	}
	clear(out[n:])
	*all = out[:n]
}

func (l *list[T]) divide(d *division, c *Config) {
	if l.deal != nil {
		l.deal(d, *l.of(c))
	}
}

// follow gives each part of c, which is in canonical order, the elements that it uses.
func (l *list[T]) follow(c *Config, parts map[Owner]*Config) {
	all := *l.of(c)
	if l.used == nil || len(all) == 0 {
		return
	}
	at := make(map[string]int, len(all)) // the first of each name
	for i := range all {
		if i == 0 || !l.alike(&all[i-1], &all[i]) {
			at[l.name(&all[i])] = i
		}
	}
	for _, part := range parts {
		var places []int
		l.used(part).each(func(name string) {
			first, ok := at[name]
			for i := first; ok && i < len(all) && l.alike(&all[first], &all[i]); i++ {
				places = append(places, i)
			}
		})
		*l.of(part) = pick(all, places)
	}
}

// pick returns the elements at the places, which differ, in their old order.
func pick[T any](all []T, places []int) []T {
	if len(places) == 0 {
		return nil
	}
	slices.Sort(places)
	out := make([]T, len(places))
	for i, place := range places {
		out[i] = all[place]
	}
	return out
}

func (l *list[T]) validate(v *validator, c *Config) {
	all := *l.of(c)
	for i := range all {
		l.check(v, &all[i])
	}
}

func (l *list[T]) sound(s *sounder, out, c *Config) {
	for _, x := range *l.of(c) {
		l.mend(s, out, x)
	}
}

// names are those that something refers to.
type names interface {
	has(name string) bool
	each(visit func(name string))
}

// nameSet is names of which nothing else is known.
type nameSet map[string]bool

func (s nameSet) has(name string) bool { return s[name] }

func (s nameSet) each(visit func(name string)) {
	for name := range s {
		visit(name)
	}
}
