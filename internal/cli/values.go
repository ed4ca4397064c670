package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// choice is a flag with a fixed set of values.
type choice struct {
	value   string
	allowed []string
}

func newChoice(allowed ...string) choice { return choice{allowed[0], allowed} }

func (c *choice) String() string { return c.value }

// Type implements pflag.Value; it is what help shows.
func (c *choice) Type() string { return join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	for _, a := range c.allowed {
		if s == a {
			c.value = s
			return nil
		}
	}
	return fmt.Errorf("want %s", join(c.allowed, ", "))
}

func join(s []string, sep string) string { return strings.Join(s, sep) }

// byteSize is a flag such as "16MiB" or "4096".
type byteSize int64

var byteUnits = []struct {
	suffix string
	factor int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

func (b *byteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(*b); n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.suffix
		}
	}
	return "0"
}

// Type implements pflag.Value; it is what help shows.
func (b *byteSize) Type() string { return "size" }

func (b *byteSize) Set(s string) error {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > 1<<40/u.factor {
			break
		}
		*b = byteSize(n * u.factor)
		return nil
	}
	return fmt.Errorf("want a size such as 4096, 256KiB or 16MiB")
}

// bound is a number, or automatic.
type bound int

const automatic bound = -1

func (b *bound) String() string {
	if *b == automatic {
		return "auto"
	}
	return strconv.Itoa(int(*b))
}

func (b *bound) Set(s string) error {
	if s == "auto" {
		*b = automatic
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return usageError("want auto or a whole number")
	}
	*b = bound(n)
	return nil
}

func (b *bound) Type() string { return "number" }

// memoryBound is a number of bytes, or automatic.
type memoryBound int64

func (b *memoryBound) String() string {
	if *b == memoryBound(automatic) {
		return "auto"
	}
	return (*byteSize)(b).String()
}

func (b *memoryBound) Set(s string) error {
	if s == "auto" {
		*b = memoryBound(automatic)
		return nil
	}
	if (*byteSize)(b).Set(s) != nil {
		return usageError("want auto or a size such as 8MiB")
	}
	return nil
}

func (b *memoryBound) Type() string { return "size" }
