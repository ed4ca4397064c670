package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
)

// meshFlags are about the identities of workloads, and their sidecars.
type meshFlags struct {
	on        bool
	authority string
	grants    []tlsconfig.Grant
	sidecars  *inject.Settings // what flags set of them
}

func (m *meshFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&m.on, "mesh", false, "put sidecars into pods whose namespaces or labels ask for it, sign their identities, and give them their configurations, at the feed's address")
	f.StringVar(&m.authority, "mesh-authority-secret", "", "`name` of a Secret in --namespace whose authority signs them, with tls.crt, tls.key and ca.crt as cert-manager writes it; without one, the controller makes an authority")
	f.Var(tlsconfig.NewFlag(&m.grants), tlsconfig.FlagName, tlsconfig.FlagUsage)
	m.sidecars = inject.NewSettings()
	m.sidecars.Secret = func() string { return strings.ToLower(rand.Text()) }
	m.sidecars.Flags(f)
}

func (m *meshFlags) check() error {
	if m.authority == "" {
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(m.authority); len(problems) > 0 {
		return flags.Errorf("--mesh-authority-secret: %q is not the name of a Secret: %s", m.authority, problems[0])
	}
	if m.authority == replica.AuthorityName || m.authority == replica.IdentityName {
		return flags.Errorf("--mesh-authority-secret: %q is a Secret of the controller's own; give it another name", m.authority)
	}
	return nil
}

// identities sign those of workloads, in every replica.
type identities struct {
	authority               *replica.Authority
	issuer                  workload.Issuer
	signed, refused, failed atomic.Uint64
}

// newIdentities has the feed sign them; nil if none are signed.
func newIdentities(c *controlPlane) *identities {
	if !c.mesh.on {
		return nil
	}
	i := &identities{authority: &replica.Authority{
		Client: c.client, Namespace: c.namespace, Name: replica.IdentityName, Given: c.mesh.authority,
		Sample: spiffe.Scheme + c.trustDomain + "/ns/sample/sa/sample", Logger: c.log,
		Changed: func() { c.sidecars.rerooted() },
	}}
	pods := &replica.Pods{Client: c.client, Audience: infra.Audience, Namespaces: c.namespaces}
	i.issuer = workload.Issuer{Authority: i.authority.Current, TrustDomain: c.trustDomain, Attest: pods.Attest, Names: c.subjectNames}
	c.feeds.Sign, c.tokens.Pods = i.sign, pods
	return i
}

// errNotRead is returned while it is not known which TLSConfigs there are. A certificate signed meanwhile would lack its
// names until its renewal.
var errNotRead = errors.New("the TLSConfigs of the cluster are not known yet")

// subjectNames are the DNS names that TLSConfigs give a pod, by the labels that it has now.
func (c *controlPlane) subjectNames(p *workload.Pod) ([]string, error) {
	r := c.latest.Load()
	if r == nil || r.Sidecars == nil {
		return nil, errNotRead
	}
	return r.Sidecars.Names(p.Namespace, p.Labels), nil
}

// sign implements feed.Server.Sign.
func (i *identities) sign(ctx context.Context, token string) (func([]byte) ([]byte, error), error) {
	answer, err := i.issuer.For(ctx, token)
	if err != nil {
		return nil, i.count(err)
	}
	return func(request []byte) ([]byte, error) {
		data, err := answer(request)
		return data, i.count(err)
	}, nil
}

// count counts a request that has ended so, and says to the feed whose fault it is.
func (i *identities) count(err error) error {
	switch {
	case err == nil:
		i.signed.Add(1)
	case errors.Is(err, workload.ErrRefused):
		i.refused.Add(1)
	default:
		i.failed.Add(1)
		return fmt.Errorf("%w: %w", feed.ErrUnavailable, err)
	}
	return err
}

// collect tells how they stand.
func (i *identities) collect(to chan<- prometheus.Metric) {
	for result, n := range map[string]*atomic.Uint64{"signed": &i.signed, "refused": &i.refused, "failed": &i.failed} {
		to <- prometheus.MustNewConstMetric(metricIdentities, prometheus.CounterValue, float64(n.Load()), result)
	}
	if a := i.authority.Current(); a != nil {
		to <- prometheus.MustNewConstMetric(metricIdentityEnd, prometheus.GaugeValue, float64(a.Ends().Unix()))
	}
}
