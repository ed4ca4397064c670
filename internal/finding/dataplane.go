package finding

import (
	"fmt"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Codes of problems that a data plane has with a configuration, or while it runs.
const (
	CodePort    = "WR805"
	CodeDropped = "WR806"
	CodeFailing = "WR807"
	CodeLeftOut = "WR810"
)

// Unserved is a valid listener that is not served, because its port cannot be bound.
type Unserved struct {
	// Listener is the name in the model.
	Listener string
	// Ref is where it was written.
	Ref  model.Ref
	Port int32
	// Reason is the system's error, Fix what to do about it.
	Reason, Fix string
}

// Message describes what is not served, and why.
func (u Unserved) Message() string {
	return fmt.Sprintf("port %d cannot be bound, so the listener is not served: %s", u.Port, u.Reason)
}

// Finding is the finding about it, without its place.
func (u Unserved) Finding() Finding {
	f := Finding{Code: CodePort, Severity: Error, Ref: u.Ref, Message: u.Message(), Fix: u.Fix}
	if f.Ref.Field != "" {
		f.Ref.Field += ".port"
	}
	return f
}

// Owner is whose listener it is; empty for one that no Gateway has.
func (u Unserved) Owner() model.Owner { return model.OwnerOfListener(u.Listener, u.Ref) }

// UnservedError says that a configuration is served but for these listeners, which who serves it tries again by itself.
type UnservedError []Unserved

// Error implements error.
func (e UnservedError) Error() string {
	var all []string
	for _, u := range e {
		all = append(all, "listener "+u.Listener+": "+u.Message())
	}
	return strings.Join(First(all, 3), "; ")
}

// ByOwner sorts what is not served by who has it; empty is nobody.
func ByOwner(all []Unserved) map[model.Owner]error {
	of := map[model.Owner]UnservedError{}
	for _, u := range all {
		of[u.Owner()] = append(of[u.Owner()], u)
	}
	out := make(map[model.Owner]error, len(of))
	for owner, e := range of {
		out[owner] = e
	}
	return out
}

// LeftOut tells of what a data plane, or the check of the model, leaves out. origin, which may be nil, says where objects were written.
func LeftOut(left []model.Omission, origin func(model.Ref) Origin) []Finding {
	var out []Finding
	for _, o := range left {
		f := Finding{
			Code: CodeLeftOut, Severity: Error, Ref: o.Ref, Message: o.Reason,
			Fix: "please report this; until then, change the named field",
		}
		if origin != nil {
			f.Origin = origin(o.Ref)
		}
		out = append(out, f)
	}
	return out
}
