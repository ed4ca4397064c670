package model

// PathPolicy says what becomes of requests whose path common servers read in several ways.
type PathPolicy string

const (
	// PathAsWritten serves them: a path is what routing.NormalizePath makes of it, however the backend reads it. It is what holds where
	// nothing says otherwise.
	PathAsWritten PathPolicy = "as-written"
	// PathStrict refuses them with 400: those with several readings whatever the rules, and those that a server would give to another rule
	// by passing over letter case, dots at a segment's end or escapes that mean the same. See routing.Listener.Refuses.
	PathStrict PathPolicy = "strict"
)

// Valid is true for the policies there are; the empty one, which leaves the choice to others, is none.
func (p PathPolicy) Valid() bool { return p == PathAsWritten || p == PathStrict }

func (v *validator) pathPolicy(where Ref, p PathPolicy) {
	if p != "" && !p.Valid() {
		v.fail(where, "pathPolicy", "%q is neither %q nor %q", p, PathAsWritten, PathStrict)
	}
}

// DefaultPathPolicy sets the policy of those listeners for requests that have none.
func (c *Config) DefaultPathPolicy(p PathPolicy) {
	for i := range c.Listeners {
		if l := &c.Listeners[i]; l.PathPolicy == "" && l.Protocol.Requests() {
			l.PathPolicy = p
		}
	}
}
