package model

// Supply is what many small configurations are made from, such as those of a cluster's sidecars: it finds what one needs
// without a look at all the rest. It is immutable and may be used from any goroutine. It shares memory with the
// configurations it was made of, which may not be changed.
type Supply struct {
	shelves  []shelf
	policies []Policy
}

// shelf is one configuration of a Supply, with the places of its elements by name.
type shelf struct {
	from                        Config
	services, splits, workloads map[string][]int
}

// NewSupply makes a Supply of configurations as they are before Merge.
func NewSupply(configs ...Config) *Supply {
	s := &Supply{}
	for _, c := range configs {
		s.shelves = append(s.shelves, shelf{
			from:      c,
			services:  places(c.Services, func(x *Service) string { return x.Name }),
			splits:    places(c.Splits, func(x *Split) string { return x.Root }),
			workloads: places(c.Workloads, (*Workload).Name),
		})
		s.policies = append(s.policies, c.Policies...)
	}
	return s
}

func places[T any](all []T, name func(*T) string) map[string][]int {
	if len(all) == 0 {
		return nil
	}
	out := make(map[string][]int, len(all))
	for i := range all {
		n := name(&all[i])
		out[n] = append(out[n], i)
	}
	return out
}

// For returns what the owner of the listeners in c serves: c, with the services, splits, workloads and policies of the
// Supply that it needs. It is Merge of the Supply's configurations and c, and of that the owner's part (Config.Of), but
// the Supply gives it no listeners, routes and certificates: whoever has c learns nothing of these.
func (s *Supply) For(owner Owner, c Config) *Config {
	services, splits, workloads := nameSet{}, nameSet{}, nameSet{}
	for name := range c.direct() {
		services[name], splits[name] = true, true
	}
	for i := range c.Listeners {
		workloads[c.Listeners[i].Workload] = true
	}
	leaves := func(all []Split) {
		for i := range all {
			for _, l := range all[i].Leaves {
				services[l.Service] = services[l.Service] || splits[all[i].Root]
			}
		}
	}
	leaves(c.Splits)
	parts := make([]Config, len(s.shelves), len(s.shelves)+1)
	for i := range s.shelves {
		parts[i].Splits = named(s.shelves[i].from.Splits, s.shelves[i].splits, splits)
		parts[i].Workloads = named(s.shelves[i].from.Workloads, s.shelves[i].workloads, workloads)
		leaves(parts[i].Splits)
	}
	// A service that extends another one needs that, too, wherever each of them is.
	extended := func(all []Service) {
		for i := range all {
			if all[i].Extends != "" && services[all[i].Name] {
				services[all[i].Extends] = true
			}
		}
	}
	extended(c.Services)
	for i := range s.shelves {
		extended(named(s.shelves[i].from.Services, s.shelves[i].services, services))
	}
	var of []Workload
	for i := range s.shelves {
		parts[i].Services = named(s.shelves[i].from.Services, s.shelves[i].services, services)
		of = append(of, parts[i].Workloads...)
	}
	if len(parts) > 0 {
		parts[0].Policies = naming(s.policies, of)
	}
	merged := Merge(append(parts, c)...)
	return merged.Of(owner)
}

// named returns the elements of the wanted names, in their old order.
func named[T any](all []T, at map[string][]int, wanted nameSet) []T {
	var found []int
	for name, want := range wanted {
		if want {
			found = append(found, at[name]...)
		}
	}
	return pick(all, found)
}

// naming returns the policies that name one of the workloads.
func naming(all []Policy, workloads []Workload) (out []Policy) {
	for i := range all {
		for j := range workloads {
			if all[i].Names(&workloads[j]) {
				out = append(out, all[i])
				break
			}
		}
	}
	return out
}
