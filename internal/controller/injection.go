package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/admission"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/trust"
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
func newPods(c *controlPlane) *admission.Pods {
	if !c.mesh.on {
		return nil
	}
	p := &admission.Pods{Settings: c.sidecarSettings()}
	c.reviews.Paths[admission.PodsPath], c.reviews.Paths[admission.FinalPodsPath] = p.Inject, p.Final
	return p
}

// keepTrust is the task that gives namespaces with sidecars the certificates by which these know the controller.
func (c *controlPlane) keepTrust(ctx context.Context) error {
	k := &trust.Keeper{Client: c.client, Namespaces: c.namespaces, Asking: c.asking, Bundle: c.authority.Bundle, Logger: c.log}
	return k.Run(ctx, c.entrusted)
}

// asking are the namespaces that ask for sidecars and may have them.
func (c *controlPlane) asking() (all []string) {
	r := c.latest.Load()
	if r == nil || r.Set == nil {
		return nil
	}
	for _, n := range r.Set.Namespaces {
		d := c.pods.Settings.Ask(n.Name, n.Labels, &corev1.Pod{})
		if d.Outcome == inject.Injected && n.DeletionTimestamp == nil {
			all = append(all, n.Name)
		}
	}
	return all
}

// collectPods tells how many pods were injected.
func collectPods(p *admission.Pods, to chan<- prometheus.Metric) {
	s := p.Stats()
	for result, n := range map[string]uint64{"injected": s.Injected, "excluded": s.Excluded, "refused": s.Refused} {
		to <- prometheus.MustNewConstMetric(metricPods, prometheus.CounterValue, float64(n), result)
	}
}
