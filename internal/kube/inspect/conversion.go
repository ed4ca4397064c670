package inspect

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/convert"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Conversion is how the API server converts objects of a definition between versions.
type Conversion struct {
	// Definition is its name.
	Definition string
	// Converted are the served versions that differ from the stored one in more than their name, Unserved the versions
	// that are not served.
	Converted, Unserved []string
	// Webhook means that a webhook converts; otherwise versions are only renamed.
	Webhook bool
	// Service, "namespace/name", or URL is the webhook's place.
	Service, URL string
	// NoService means that the Service does not exist or lacks the port. Endpoints is how many of its pods are ready;
	// -1 means not known.
	NoService bool
	Endpoints int
	// Bundle are the certificates that the webhook is trusted by, Authority those of the controller, both PEM; an empty
	// Authority is not known.
	Bundle, Authority []byte
	// Failure is the API server's error when asked for objects in one of the versions Converted; empty if it lists
	// them.
	Failure string
}

// conversions reads them.
func (r *reader) conversions(ctx context.Context) error {
	authority, err := r.authority(ctx)
	if err != nil {
		return err
	}
	for _, k := range r.Kinds.Conversions() {
		c, err := r.conversion(ctx, k)
		if err != nil {
			return err
		}
		if c != nil {
			c.Authority = authority
			r.out.Conversions = append(r.out.Conversions, *c)
		}
	}
	return nil
}

// authority is the certificates by which a Gateway's proxies verify the controller.
func (r *reader) authority(ctx context.Context) ([]byte, error) {
	if r.trust.Name == "" {
		return nil, nil
	}
	var m corev1.ConfigMap
	err := r.client.Get(ctx, r.trust, &m)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return []byte(m.Data[infra.CAKey]), err
}

// conversion reads that of a kind; nil if there is none, or if it may not be read, which was reported already.
func (r *reader) conversion(ctx context.Context, k convert.Kind) (*Conversion, error) {
	var d apiextensionsv1.CustomResourceDefinition
	err := r.client.Get(ctx, client.ObjectKey{Name: k.Definition()}, &d)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("custom resource definition %s: %w", k.Definition(), err)
	}
	c := &Conversion{Definition: d.Name, Endpoints: -1}
	for _, v := range d.Spec.Versions {
		switch differs := k.Versions[v.Name].Up != nil; {
		case differs && v.Served:
			c.Converted = append(c.Converted, v.Name)
		case differs && v.Name != split.Draft:
			c.Unserved = append(c.Unserved, v.Name)
		}
	}
	if w := d.Spec.Conversion; w != nil && w.Strategy == apiextensionsv1.WebhookConverter && w.Webhook != nil && w.Webhook.ClientConfig != nil {
		c.Webhook, c.Bundle = true, w.Webhook.ClientConfig.CABundle
		if u := w.Webhook.ClientConfig.URL; u != nil {
			c.URL = *u
		}
		if s := w.Webhook.ClientConfig.Service; s != nil {
			if err := r.endpoints(ctx, c, s); err != nil {
				return nil, err
			}
		}
	}
	if c.Webhook && len(c.Converted) > 0 {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: c.Converted[0], Kind: k.Name + "List"})
		err := r.client.List(ctx, list, client.Limit(1))
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) && ctx.Err() == nil {
			c.Failure = err.Error()
		}
	}
	return c, nil
}

// endpoints looks at the webhook's Service.
func (r *reader) endpoints(ctx context.Context, c *Conversion, s *apiextensionsv1.ServiceReference) error {
	c.Service = s.Namespace + "/" + s.Name
	var service corev1.Service
	err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Name}, &service)
	switch {
	case apierrors.IsNotFound(err):
		c.NoService = true
		return nil
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("the conversion webhook's Service %s: %w", c.Service, err)
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return s.Port != nil && p.Port == *s.Port })
	if at < 0 {
		c.NoService = true
		return nil
	}
	var slices discoveryv1.EndpointSliceList
	if err := r.client.List(ctx, &slices, client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.Name}); err != nil {
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("the endpoints of Service %s: %w", c.Service, err)
	}
	c.Endpoints = 0
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				c.Endpoints++
			}
		}
	}
	return nil
}

// conversions judges them, if there is a controller. A missing controller is reported elsewhere.
func (j *judge) conversions() {
	if j.Controller == nil {
		return
	}
	for _, c := range j.Conversions {
		j.conversion(c)
	}
}

func (j *judge) conversion(c Conversion) {
	const where = "spec.conversion.webhook.clientConfig"
	ref := model.Ref{Kind: "CustomResourceDefinition", Name: c.Definition}
	versions := strings.Join(c.Converted, ", ")
	leader := fmt.Sprintf("the controller's leader writes it: make sure that one leads, and see its log: kubectl -n %s logs deployment/%s --all-pods", j.Controller.Namespace, j.Controller.Name)
	own := j.Controller.Namespace + "/" + j.Controller.Service
	if len(c.Unserved) > 0 {
		f := j.add(CodeConversion, ref, "spec.versions", fmt.Sprintf("%s is not served: clients that know no other version, such as rollout controllers, cannot write objects",
			strings.Join(c.Unserved, ", ")), "apply the definitions of this release (deploy/crds), which Helm does not upgrade")
		f.Severity = resource.Info
	}
	switch {
	case len(c.Converted) == 0:
	case !c.Webhook:
		j.add(CodeConversion, ref, "spec.conversion.strategy", "no webhook converts "+versions+": the API server only renames versions, so an object means something else in another version",
			"apply the definitions of this release (deploy/crds)")
	case len(bytes.TrimSpace(c.Bundle)) == 0:
		j.add(CodeConversion, ref, where+".caBundle", "is empty: the API server cannot tell the controller from others and converts no "+versions, leader)
	case c.URL == "" && c.Service != own:
		f := j.add(CodeConversion, ref, where+".service", fmt.Sprintf("Service %s converts %s, and not this controller (%s)", c.Service, versions, own),
			"remove caBundle there, if this controller should convert")
		f.Severity = resource.Warning
	case !current(c.Bundle):
		j.add(CodeConversion, ref, where+".caBundle", "none of its certificates is valid now: the API server converts no "+versions, leader)
	case len(c.Authority) > 0 && !shares(c.Bundle, c.Authority):
		j.add(CodeConversion, ref, where+".caBundle", "is not that of the controller's authority, by which its proxies know it: the API server converts no "+versions, leader)
	case c.NoService:
		j.add(CodeConverter, ref, where+".service", "Service "+c.Service+" does not exist, or lacks the port: the API server converts no "+versions, install)
	case c.Endpoints == 0:
		j.add(CodeConverter, ref, where+".service", "Service "+c.Service+" has no ready endpoints: the API server converts no "+versions,
			fmt.Sprintf("kubectl -n %s describe pods -l app.kubernetes.io/component=controller", j.Controller.Namespace))
	case c.Failure != "":
		j.add(CodeNotConverted, ref, "spec.conversion", "objects cannot be read in "+c.Converted[0]+": "+c.Failure,
			"if the message names an object, correct that in the version it is stored in; otherwise make sure that the API server reaches port 443 of the Service (firewalls and NetworkPolicies)")
	}
}

// certificatesOf are the certificates of a bundle.
func certificatesOf(bundle []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
}

// current reports whether a certificate of the bundle is valid now.
func current(bundle []byte) bool {
	now := time.Now()
	return slices.ContainsFunc(certificatesOf(bundle), func(c *x509.Certificate) bool { return !now.Before(c.NotBefore) && !now.After(c.NotAfter) })
}

// shares reports whether two bundles have a certificate in common.
func shares(a, b []byte) bool {
	theirs := certificatesOf(b)
	return slices.ContainsFunc(certificatesOf(a), func(c *x509.Certificate) bool { return slices.ContainsFunc(theirs, c.Equal) })
}
