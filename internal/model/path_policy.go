package model

// PathPolicy decides about requests whose path common servers read in several ways.
type PathPolicy string

const (
	// PathAsWritten serves them: the normal form of a path counts (routing.NormalizePath), however the backend reads
	// it. It is the default.
	PathAsWritten PathPolicy = "as-written"
	// PathStrict refuses them with 400: paths with several readings, whatever the rules are, and paths that a server
	// would give to another rule because it ignores letter case, dots at a segment's end or equivalent escapes. See
	// routing.Listener.Refuses.
	PathStrict PathPolicy = "strict"
)

// Valid is true for the policies above, and false for the empty one, which leaves the choice to others.
func (p PathPolicy) Valid() bool { return p == PathAsWritten || p == PathStrict }

func (v *validator) pathPolicy(where Ref, p PathPolicy) {
	if p != "" && !p.Valid() {
		v.fail(where, "pathPolicy", "%q is neither %q nor %q", p, PathAsWritten, PathStrict)
	}
}

// DefaultPathPolicy sets the policy of all listeners for requests that have none.
func (c *Config) DefaultPathPolicy(p PathPolicy) {
	for i := range c.Listeners {
		if l := &c.Listeners[i]; l.PathPolicy == "" && l.Protocol.Requests() {
			l.PathPolicy = p
		}
	}
}
