//go:build !linux

package netfilter

import (
	"errors"

	"github.com/weirmesh/weir/internal/redirect"
)

var errLinux = errors.New("redirects are made with nftables, which only Linux has")

// Set fails: there is no netfilter.
func Set(*redirect.Plan) (int, error) { return 0, errLinux }
