package sidecar

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// clashes are ports of pods with sidecars about which Services say different things.
type clashes struct {
	once  sync.Once
	found []resource.Finding
}

// Findings are what is wrong with the set, as far as it matters to sidecars alone.
func (x *Index) Findings() []resource.Finding {
	x.clashes.once.Do(func() { x.clashes.found = x.compareProtocols() })
	return x.clashes.found
}

// compareProtocols finds the clashes.
func (x *Index) compareProtocols() []resource.Finding {
	type says struct {
		at       model.Ref // a port of a Service
		protocol model.Protocol
	}
	type clash struct {
		one, two says
		port     int32
	}
	pods := map[clash][]string{}
	known, selection := x.known.read(), x.led.read().selection
	for i := range known.all {
		p := &known.all[i]
		if p.Kind != model.KindPod || !p.Sidecar {
			continue
		}
		said := map[int32]says{}
		for _, s := range selection.Of(p.Object) {
			for k := range s.Spec.Ports {
				port := &s.Spec.Ports[k]
				n, now := p.Target(port), says{portRef(s, k), resource.ServedProtocol(port)}
				if n == 0 || !isTCP(port) || now.protocol == unknown {
					continue
				}
				if before, ok := said[n]; ok && before.protocol != now.protocol {
					c := clash{before, now, n}
					pods[c] = append(pods[c], p.Name)
				}
				said[n] = now
			}
		}
	}
	t := &translator{set: x.set}
	for c, of := range pods {
		more := ""
		if len(of) > 1 {
			more = fmt.Sprintf(" and %d more", len(of)-1)
		}
		t.report(c.two.at, resource.Problem(codeTwoProtocols, "TwoProtocols", "", fmt.Sprintf("port %d of pod %s%s speaks %s here, and %s by Service %s/%s %s; sidecars go by the last of these Services by name",
			c.port, slices.Min(of), more, protocolWords[c.two.protocol], protocolWords[c.one.protocol], c.one.at.Namespace, c.one.at.Name, c.one.at.Field), "write the same appProtocol into both"))
	}
	resource.SortFindings(t.findings)
	return t.findings
}

var protocolWords = map[model.Protocol]string{model.HTTP: "HTTP", model.H2C: "HTTP/2", model.TCP: "no HTTP"}
