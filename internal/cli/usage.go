package cli

import "fmt"

// usageFault is a mistake in the command line or in the environment that stands for it.
type usageFault struct{ err error }

func (e *usageFault) Error() string { return e.err.Error() }

func (e *usageFault) Unwrap() error { return e.err }

// usageError is a usageFault with fmt.Errorf's text.
func usageError(format string, args ...any) error {
	return &usageFault{fmt.Errorf(format, args...)}
}
