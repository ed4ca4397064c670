package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/explain"
	"github.com/weirmesh/weir/internal/explain/access"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
)

// accessServed is what was read, for questions about access.
func (l *look) accessServed() *access.Served {
	s := &access.Served{Config: l.Config, Set: l.set, TrustDomain: l.trustDomain, Origin: l.served().Origin}
	if l.Calls != nil {
		s.Calls = l.Calls.To
	}
	if l.Sidecars != nil {
		s.Mesh = true
		for _, g := range l.Gateways {
			s.Gateways = append(s.Gateways, access.Gateway{Namespace: g.Namespace, Name: g.Name, Account: infra.Name(g.Name, string(g.Spec.GatewayClassName))})
		}
	}
	for _, f := range l.Findings {
		if l.client != nil && f.Ref == (model.Ref{}) { // what cannot be read of the cluster, and that nothing is enforced
			s.Notes = append(s.Notes, f.Message)
		}
	}
	return s
}

// explainFrom says whether a client may make a call.
func explainFrom(s streams, l *look, who string, r *curl.Request, format string) error {
	served := l.accessServed()
	a, err := served.Explain(who, r)
	if err != nil {
		return accessFault("--from", err)
	}
	a.Notes = append(a.Notes, l.leftSplits(a)...)
	if format == "json" {
		out, err := explain.WithOrigins(a, served.Origin)
		if err != nil {
			return err
		}
		err = process.WriteJSON(s.out, out)
		if err != nil {
			return err
		}
	} else if err := a.Print(s.out, screen.Of(s.out), served); err != nil {
		return err
	}
	if !a.Verdict.Passes() {
		return &exitError{code: exitNoMatch}
	}
	return nil
}

// leftSplits says which splits of the services that a call goes to are left out.
func (l *look) leftSplits(a *access.Answer) (notes []string) {
	var services []string
	if a.Service != nil {
		services = append(services, a.Service.Ref.Namespace+"/"+a.Service.Ref.Name)
	}
	if a.Route != nil {
		services = append(services, a.Route.Services()...)
	}
	for _, x := range l.served().LeftSplits(services) {
		f := x.Findings[0]
		note := finding.Object(x.Ref) + " is left out: " + strings.TrimSpace(f.Code+" "+f.Ref.Field) + ", " + f.Message
		if at := f.Origin.String(); at != "" {
			note += "  (" + at + ")"
		}
		notes = append(notes, note)
	}
	return notes
}

// accessFault says what is wrong with a name on the command line, and what names there are.
func accessFault(flag string, err error) error {
	var who *access.WhoError
	var host *access.HostError
	var there []string
	switch {
	case errors.As(err, &who):
		err, there = fmt.Errorf("%s %w", flag, err), who.There
	case errors.As(err, &host):
		there = host.There
	default:
		return err
	}
	if len(there) == 0 {
		return flags.Errorf("%w", err)
	}
	return &listed{flags.Errorf("%w; there is", err), finding.First(there, maxListed)}
}
