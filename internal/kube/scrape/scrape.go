package scrape

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirmesh/weir/internal/metrics/embedded"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/workload"
)

// MaxProxies is how many proxies of a Fleet are read at most, the first by name.
const MaxProxies = 10_000

// Pods are those that there are in a cluster. The zero value knows none.
type Pods struct {
	known atomic.Pointer[map[string]pod]
} // by "namespace/name"

// pod is what matters of one.
type pod struct {
	addresses []string
	sidecar   bool // it has one, and addresses of its own
}

// Known says which pods there are.
func (p *Pods) Known(set *resource.Set) {
	all := workload.PodList.In(set)
	known := make(map[string]pod, len(all))
	for _, o := range all {
		known[o.Namespace+"/"+o.Name] = pod{o.Addresses, o.Sidecar && !o.HostNetwork}
	}
	p.known.Store(&known)
}

// Fleet is the proxies of Gateways, or the sidecars of pods, to read.
type Fleet struct {
	Pods *Pods
	// Connected returns the pods, "namespace/name", that have authenticated to the feed, to any replica: as proxies of
	// Gateways, or as pods that any workload may have.
	Connected func() []string
	// Read returns a function that gets the report from a URL, as embedded.Client.Read.
	Read func(url string) func(context.Context) (telemetry.Report, error)
	// Port is that of their admin endpoints.
	Port uint16
	// Sidecars is that they are sidecars: those of pods without one are not read, and what they observe is a sidecar's word.
	Sidecars bool

	leftOut atomic.Int64
}

// LeftOut is how many proxies the last call of Sources left out, as there are more than MaxProxies.
func (f *Fleet) LeftOut() int { return int(f.leftOut.Load()) }

// Sources are the proxies as a Store reads them. Those whose pod has gone, or has no address that is known yet, are not
// among them; those that cannot be read say why when they are to be.
func (f *Fleet) Sources() []embedded.Source {
	names := slices.Clone(f.Connected())
	slices.Sort(names)
	names = slices.Compact(names)
	f.leftOut.Store(int64(max(0, len(names)-MaxProxies)))
	names = names[:min(len(names), MaxProxies)]
	var pods map[string]pod
	if known := f.Pods.known.Load(); known != nil {
		pods = *known
	}
	out := make([]embedded.Source, 0, len(names))
	for _, full := range names {
		of := pods[full]
		if len(of.addresses) == 0 || f.Sidecars && !of.sidecar {
			continue
		}
		namespace, name, _ := strings.Cut(full, "/")
		source := embedded.Source{Name: full, At: telemetry.Side{Kind: model.KindPod, Namespace: namespace, Name: name}}
		if f.Sidecars {
			source.Name = "sidecar of " + full
			source.As = telemetry.Side{Kind: telemetry.KindSidecar, Namespace: namespace, Name: name}
		}
		if url, err := f.url(of.addresses); err != nil {
			source.Read = func(context.Context) (telemetry.Report, error) { return telemetry.Report{}, err }
		} else {
			source.Read = f.Read(url)
		}
		out = append(out, source)
	}
	return out
}

// url is where a pod with these addresses, one at least, has its report. Whoever may write a pod's status must not lead the controller
// to itself, to its node or to a cloud's metadata.
func (f *Fleet) url(addresses []string) (url string, err error) {
	for _, text := range addresses {
		address, e := netip.ParseAddr(text)
		why := ""
		switch {
		case e != nil:
			why = "is not an IP address"
		case address.Zone() != "":
			why = "has a zone"
		default:
			why = reach.Judge(address)
		}
		if why == "" {
			return "http://" + netip.AddrPortFrom(address, f.Port).String() + telemetry.ReportPath, nil
		}
		err = fmt.Errorf("the pod's address %q %s", text, why)
	}
	return "", err
}
