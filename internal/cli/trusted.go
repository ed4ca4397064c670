package cli

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// networks is a flag that lists addresses and networks.
type networks struct{ list *[]netip.Prefix }

func (n networks) Type() string { return "networks" }

func (n networks) String() string {
	if n.list == nil {
		return ""
	}
	return strings.Join(model.TrustedProxies(*n.list), ",")
}

// Set adds to the list.
func (n networks) Set(text string) error {
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
