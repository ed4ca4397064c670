package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// gatewayFlag names one of a cluster's Gateways.
func gatewayFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("gateway", "", "`namespace/name` of the Gateway, in a cluster")
}

// explain explains a request where the configuration was read: in files, or in a cluster at a Gateway, if it is given.
func (l *look) explain(r *clientRequest, gateway model.GatewayKey) (*explanation, error) {
	switch {
	case !l.separate() && gateway != "":
		return nil, flags.Errorf("--gateway is for a cluster; files are served as one, on the listeners' ports")
	case !l.separate():
		return l.explainAt(l.Config, r), nil
	case gateway == "":
		return l.explainIn(l.Config, l.set, r)
	}
	if _, err := part(l.Config, l.set, gateway); err != nil {
		return nil, err
	}
	return l.explainFor(l.Config, gateway, "", r), nil
}

// explainAt explains a request, and says what is left out that would take it.
func (l *look) explainAt(cfg *model.Config, r *clientRequest) *explanation {
	e := explain(cfg, r)
	l.leftOut(cfg, e)
	return e
}

// heard says that something listens for the request, if only to refuse it.
func (e *explanation) heard() bool { return e.Listener != nil || e.Answer != nil }

// part returns the configuration of the Gateway "namespace/name", of those that each have their own.
func part(cfg *model.Config, set *resource.Set, gateway model.GatewayKey) (*model.Config, error) {
	if !slices.Contains(cfg.Gateways(), gateway) {
		return nil, flags.Errorf("--gateway %s: no such Gateway is served; there is:\n%s", gateway, candidates(cfg, set, cfg.Gateways()))
	}
	return cfg.Of(gateway), nil
}

// explainIn explains a request in a cluster, where each Gateway has addresses and proxies of its own: it finds the Gateway
// that the request goes to, first.
func (l *look) explainIn(cfg *model.Config, set *resource.Set, r *clientRequest) (*explanation, error) {
	all := cfg.Gateways()
	if len(all) == 0 {
		return nil, fmt.Errorf("the cluster has no Gateway of Weir's with a listener: \"weir status\" tells more")
	}
	names := slices.DeleteFunc(slices.Clone(all), func(g model.GatewayKey) bool { return !hasAddress(set, g, r.address) })
	why := "it has the address " + r.address
	if len(names) == 0 {
		names, why = all, ""
	}
	if len(names) == 1 {
		return l.explainFor(cfg, names[0], why, r), nil
	}
	var listening, matching []*explanation
	for _, g := range names {
		e := l.explainFor(cfg, g, "", r)
		if e.heard() && r.refused != nil {
			return e, nil // so all would
		}
		if e.heard() {
			listening = append(listening, e)
		}
		if e.matched() {
			matching = append(matching, e)
		}
	}
	switch {
	case len(matching) == 1:
		e := matching[0]
		e.GatewayBy = "of those that listen, it alone has a rule that matches"
		if len(listening) == 1 {
			e.GatewayBy = "it alone listens for this"
		}
		return e, nil
	case len(matching) == 0 && len(listening) == 1:
		e := listening[0]
		e.GatewayBy = "it alone listens for this"
		return e, nil
	case len(listening) == 0:
		return nil, &exitError{exitNoMatch, fmt.Errorf("no Gateway listens for this; there is:\n%s", candidates(cfg, set, names))}
	}
	fit := listening
	if len(matching) > 0 {
		fit = matching
	}
	names = nil
	for _, e := range fit {
		names = append(names, e.Gateway)
	}
	return nil, flags.Errorf("several Gateways may get this; say which by --gateway, or by an address in the URL (the host by -H 'Host: ...'):\n%s",
		candidates(cfg, set, names))
}

func (l *look) explainFor(cfg *model.Config, gateway model.GatewayKey, why string, r *clientRequest) *explanation {
	e := l.explainAt(cfg.Of(gateway), r)
	e.Gateway, e.GatewayBy = gateway, why
	return e
}

func gatewayOf(set *resource.Set, name model.GatewayKey) *gatewayv1.Gateway {
	return set.Gateway(name.Namespace(), name.Name())
}

func hasAddress(set *resource.Set, gateway model.GatewayKey, address string) bool {
	g := gatewayOf(set, gateway)
	return g != nil && slices.ContainsFunc(g.Status.Addresses, func(a gatewayv1.GatewayStatusAddress) bool { return strings.EqualFold(a.Value, address) })
}

// candidates lists Gateways with their addresses and listeners.
func candidates(cfg *model.Config, set *resource.Set, names []model.GatewayKey) string {
	var lines []string
	for _, name := range names {
		line := "  " + string(name)
		if g := gatewayOf(set, name); g != nil && len(g.Status.Addresses) > 0 {
			var addresses []string
			for _, a := range g.Status.Addresses {
				addresses = append(addresses, a.Value)
			}
			line += " at " + strings.Join(addresses, ", ")
		}
		var listeners []string
		for i := range cfg.Listeners {
			if l := &cfg.Listeners[i]; l.Gateway == name {
				listeners = append(listeners, strings.TrimSpace(fmt.Sprintf("%d %s", l.Port, l.Hostname)))
			}
		}
		slices.Sort(listeners)
		lines = append(lines, line+": "+strings.Join(slices.Compact(listeners), ", "))
	}
	return strings.Join(lines, "\n")
}
