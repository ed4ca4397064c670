package finding

import (
	"fmt"

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

// LeftOut returns findings about parts that a data plane, or the check of the model, leaves out. origin, which may be
// nil, returns where objects were written.
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
