package flags

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Networks is a flag that lists addresses and networks.
type Networks struct{ list *[]netip.Prefix }

// NewNetworks returns a flag that adds to list.
func NewNetworks(list *[]netip.Prefix) Networks { return Networks{list} }

// Type implements pflag.Value.
func (n Networks) Type() string { return "networks" }

// String implements pflag.Value.
func (n Networks) String() string {
	if n.list == nil {
		return ""
	}
	return strings.Join(model.TrustedProxies(*n.list), ",")
}

// Set implements pflag.Value: it adds to the list.
func (n Networks) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := model.ParseTrusted(part)
		if err != nil {
			return err
		}
		*n.list = append(*n.list, p)
	}
	if len(*n.list) > model.MaxTrustedProxies {
		return fmt.Errorf("%d networks are more than %d; join some into larger ones", len(*n.list), model.MaxTrustedProxies)
	}
	return nil
}
