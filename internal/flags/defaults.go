package flags

import "github.com/spf13/pflag"

// Defaults gives flags of a command other defaults than those they were added with. It panics for a flag that is not there
// and a value that it does not take.
func Defaults(f *pflag.FlagSet, values map[string]string) {
	for name, value := range values {
		flag := f.Lookup(name)
		if err := flag.Value.Set(value); err != nil {
			panic("flags: " + name + ": " + err.Error())
		}
		flag.DefValue = flag.Value.String()
	}
}
