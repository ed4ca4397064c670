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

// MaxProxies is how many proxies are read at most, the first by name.
const MaxProxies = 10_000

// Proxies are the pods to read.
type Proxies struct {
	// Connected returns the pods, "namespace/name", that have authenticated to the feed as proxies, to any replica.
	Connected func() []string
	// Read returns a function that gets the report from a URL, as embedded.Client.Read.
	Read func(url string) func(context.Context) (telemetry.Report, error)
	// Port is that of their admin endpoints.
	Port uint16

	addresses atomic.Pointer[map[string][]string] // by pod
	leftOut   atomic.Int64
}

// Known says which pods there are.
func (p *Proxies) Known(set *resource.Set) {
	pods := workload.PodList.In(set)
	addresses := make(map[string][]string, len(pods))
	for _, pod := range pods {
		addresses[pod.Namespace+"/"+pod.Name] = pod.Addresses
	}
	p.addresses.Store(&addresses)
}

// LeftOut is how many proxies the last call of Sources left out, as there are more than MaxProxies.
func (p *Proxies) LeftOut() int { return int(p.leftOut.Load()) }

// Sources are the proxies as a Store reads them. Those whose pod has gone, or has no address that is known yet, are not
// among them; those that cannot be read say why when they are to be.
func (p *Proxies) Sources() []embedded.Source {
	names := slices.Clone(p.Connected())
	slices.Sort(names)
	names = slices.Compact(names)
	p.leftOut.Store(int64(max(0, len(names)-MaxProxies)))
	names = names[:min(len(names), MaxProxies)]
	var addresses map[string][]string
	if known := p.addresses.Load(); known != nil {
		addresses = *known
	}
	out := make([]embedded.Source, 0, len(names))
	for _, name := range names {
		of := addresses[name]
		if len(of) == 0 {
			continue
		}
		namespace, pod, _ := strings.Cut(name, "/")
		source := embedded.Source{Name: name, At: telemetry.Side{Kind: model.KindPod, Namespace: namespace, Name: pod}}
		if url, err := p.url(of); err != nil {
			source.Read = func(context.Context) (telemetry.Report, error) { return telemetry.Report{}, err }
		} else {
			source.Read = p.Read(url)
		}
		out = append(out, source)
	}
	return out
}

// url is where a pod with these addresses, one at least, has its report. Whoever may write a pod's status must not lead the controller
// to itself, to its node or to a cloud's metadata.
func (p *Proxies) url(addresses []string) (url string, err error) {
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
			return "http://" + netip.AddrPortFrom(address, p.Port).String() + telemetry.ReportPath, nil
		}
		err = fmt.Errorf("the pod's address %q %s", text, why)
	}
	return "", err
}
