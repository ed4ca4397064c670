package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/admission"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/trust"
	"github.com/weirmesh/weir/internal/kube/webhook"
	"github.com/weirmesh/weir/internal/process"
)

// injects says whether API servers have pods injected by the controller.
func (o *Options) injects() bool { return o.mesh.on && o.conversion.on() }

// sidecarSettings are those of what is put into pods.
func (o *Options) sidecarSettings() *inject.Settings {
	s := *o.mesh.sidecars
	s.Image, s.PullPolicy, s.Controller, s.Audience, s.TrustDomain = o.proxyImage, o.imagePullPolicy(), o.feedTarget(), infra.Audience, o.trustDomain
	s.Namespace, s.LogLevel, s.LogFormat, s.Version = o.namespace, o.proxyLog.level, o.proxyLog.format, process.Build().Version
	return &s
}

// newPods puts sidecars into pods; nil if there are to be none.
func newPods(c *controlPlane) (*admission.Pods, error) {
	if !c.mesh.on {
		return nil, nil
	}
	list, err := admission.NewLister(c.client.Config)
	if err != nil {
		return nil, err
	}
	p := &admission.Pods{Settings: c.sidecarSettings(), Selecting: func(ctx context.Context, namespace string, labels map[string]string) ([]string, error) {
		all, err := list.TLSConfigs(ctx, namespace)
		return tlsconfig.Selecting(all, labels), err
	}}
	c.reviews.Paths[admission.PodsPath], c.reviews.Paths[admission.FinalPodsPath] = p.Inject, p.Final
	c.reviews.Paths[admission.SelectedPodsPath], c.reviews.Paths[admission.FinalSelectedPodsPath] = p.InjectSelected, p.FinalSelected
	return p, nil
}

// keepTrust is the task that gives namespaces with sidecars the certificates by which these know the controller.
func (c *controlPlane) keepTrust(ctx context.Context) error {
	k := &trust.Keeper{Client: c.client, Namespaces: c.namespaces, Asking: c.asking, Bundle: c.authority.Bundle, Logger: c.log}
	return k.Run(ctx, c.entrusted)
}

// asking are the namespaces that ask for sidecars and may have them, those with TLSConfigs among them.
func (c *controlPlane) asking() (all []string) {
	r := c.latest.Load()
	if r == nil || r.Set == nil {
		return nil
	}
	all, _ = c.selected()
	for _, n := range r.Set.Namespaces {
		d := c.pods.Settings.Ask(n.Name, n.Labels, &corev1.Pod{})
		if d.Outcome == inject.Injected && n.DeletionTimestamp == nil {
			all = append(all, n.Name)
		}
	}
	return all
}

// selected are the namespaces with TLSConfigs whose pods may have sidecars by these, sorted, and whether they are known. A
// namespace's label counts before its TLSConfigs.
func (c *controlPlane) selected() (all []string, known bool) {
	r := c.latest.Load()
	if r == nil || r.Set == nil {
		return nil, false
	}
	labels := map[string]string{}
	for _, n := range r.Set.Namespaces {
		labels[n.Name] = n.Labels[inject.Label]
	}
	never := inject.ExcludedNamespaces(c.namespace)
	return slices.DeleteFunc(tlsconfig.Namespaces(r.Set), func(n string) bool {
		return slices.Contains(never, n) || labels[n] == inject.Enabled || labels[n] == inject.Disabled
	}), true
}

// The names of the webhooks of namespaces with TLSConfigs, and of the one of which they are copies.
const (
	copiedHook    = "namespaces.sidecars.weirmesh.github.io"
	selectedHook  = "pods.tlsconfigs.weirmesh.github.io"
	optedOutHook  = "opted-out.tlsconfigs.weirmesh.github.io"
	mutatingKind  = "MutatingWebhookConfiguration"
	validatedKind = "ValidatingWebhookConfiguration"
)

// keepSelected is the task that has API servers ask about the pods of namespaces with TLSConfigs.
func (c *controlPlane) keepSelected(ctx context.Context) error {
	s := &webhook.Selected{
		Client: c.client, From: access.SidecarsWebhook, Hook: copiedHook, To: access.SelectedWebhook,
		Label: inject.Label, Out: []string{inject.Disabled, inject.Enabled}, Namespaces: c.selected, Bundle: c.authority.Bundle, Logger: c.log,
		Kinds: map[string][]webhook.Copy{
			mutatingKind: {{Name: selectedHook, Path: admission.SelectedPodsPath}},
			validatedKind: {
				{Name: selectedHook, Path: admission.FinalSelectedPodsPath},
				{Name: optedOutHook, Path: admission.FinalSelectedPodsPath, Objects: []string{inject.Disabled}, Advises: true},
			},
		},
	}
	return s.Run(ctx, c.selecting)
}

// collectPods tells how many pods were injected.
func collectPods(p *admission.Pods, to chan<- prometheus.Metric) {
	s := p.Stats()
	for result, n := range map[string]uint64{"injected": s.Injected, "excluded": s.Excluded, "refused": s.Refused} {
		to <- prometheus.MustNewConstMetric(metricPods, prometheus.CounterValue, float64(n), result)
	}
}
