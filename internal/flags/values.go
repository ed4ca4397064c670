package flags

import (
	"fmt"
	"strconv"
	"strings"
)

// Choice is a flag with a fixed set of values.
type Choice struct {
	// Value is the chosen one.
	Value   string
	allowed []string
}

// NewChoice returns a flag that may have these values; the first is the default.
func NewChoice(allowed ...string) Choice { return Choice{allowed[0], allowed} }

// String implements pflag.Value.
func (c *Choice) String() string { return c.Value }

// Type implements pflag.Value; help shows it.
func (c *Choice) Type() string { return strings.Join(c.allowed, "|") }

// Set implements pflag.Value.
func (c *Choice) Set(s string) error {
	for _, a := range c.allowed {
		if s == a {
			c.Value = s
			return nil
		}
	}
	return fmt.Errorf("want %s", strings.Join(c.allowed, ", "))
}

// Size is a number of bytes, written such as "16MiB" or "4096".
type Size int64

var byteUnits = []struct {
	suffix string
	factor int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// String implements pflag.Value.
func (b *Size) String() string {
	for _, u := range byteUnits {
		if n := int64(*b); n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.suffix
		}
	}
	return "0"
}

// Type implements pflag.Value; help shows it.
func (b *Size) Type() string { return "size" }

// Set implements pflag.Value.
func (b *Size) Set(s string) error {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > 1<<40/u.factor {
			break
		}
		*b = Size(n * u.factor)
		return nil
	}
	return fmt.Errorf("want a size such as 4096, 256KiB or 16MiB")
}

// Bound is a number, or automatic.
type Bound int

const Automatic Bound = -1

// String implements pflag.Value.
func (b *Bound) String() string {
	if *b == Automatic {
		return "auto"
	}
	return strconv.Itoa(int(*b))
}

// Set implements pflag.Value.
func (b *Bound) Set(s string) error {
	if s == "auto" {
		*b = Automatic
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return Errorf("want auto or a whole number")
	}
	*b = Bound(n)
	return nil
}

// Type implements pflag.Value.
func (b *Bound) Type() string { return "number" }

// SizeBound is a number of bytes, or automatic.
type SizeBound int64

// String implements pflag.Value.
func (b *SizeBound) String() string {
	if *b == SizeBound(Automatic) {
		return "auto"
	}
	return (*Size)(b).String()
}

// Set implements pflag.Value.
func (b *SizeBound) Set(s string) error {
	if s == "auto" {
		*b = SizeBound(Automatic)
		return nil
	}
	if (*Size)(b).Set(s) != nil {
		return Errorf("want auto or a size such as 8MiB")
	}
	return nil
}

// Type implements pflag.Value.
func (b *SizeBound) Type() string { return "size" }
