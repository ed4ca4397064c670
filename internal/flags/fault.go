package flags

import "fmt"

// Fault is a mistake in the command line or in the environment that stands for it.
type Fault struct{ err error }

func (e *Fault) Error() string { return e.err.Error() }

func (e *Fault) Unwrap() error { return e.err }

// Errorf is a usageFault with fmt.Errorf's text.
func Errorf(format string, args ...any) error {
	return &Fault{fmt.Errorf(format, args...)}
}
