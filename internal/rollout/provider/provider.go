// Package provider lists the providers of rollouts. A new one is a folder with a rollout.Provider, and an entry in All.
package provider

import (
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider/gateway"
	"github.com/weirmesh/weir/internal/rollout/provider/ingress"
	"github.com/weirmesh/weir/internal/rollout/provider/istio"
	"github.com/weirmesh/weir/internal/rollout/provider/smi"
)

// All are the providers of Weir.
func All() rollout.Providers {
	return rollout.Providers{gateway.Provider, ingress.Provider, istio.Provider, smi.Provider}
}
