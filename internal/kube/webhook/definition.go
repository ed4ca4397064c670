package webhook

import (
	"bytes"
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// definition maintains the conversion webhook of one.
func (b *Bundles) definition(ctx context.Context, name, bundle string) error {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
		return err
	}
	now := definition.Spec.Conversion
	if now == nil || now.Strategy != apiextensionsv1.WebhookConverter || now.Webhook == nil || now.Webhook.ClientConfig == nil {
		return fmt.Errorf("spec.conversion.strategy: is not Webhook: install the definition of this release")
	}
	have := now.Webhook.ClientConfig
	want := b.clientConfig(bundle)
	if equality.Semantic.DeepEqual(have, want) {
		return nil
	}
	if !b.ours(have, bundle) {
		return fmt.Errorf("spec.conversion.webhook.clientConfig: is another webhook's: remove its caBundle if Weir is to convert")
	}
	err := b.patch(ctx, definition, map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": patchOf(want)}}}})
	if err == nil {
		b.Logger.Info("conversion webhook registered", "definition", name)
	}
	return err
}

func (b *Bundles) clientConfig(bundle string) *apiextensionsv1.WebhookClientConfig {
	c := &apiextensionsv1.WebhookClientConfig{CABundle: []byte(bundle)}
	if b.URL != "" {
		c.URL = &b.URL
		return c
	}
	path, port := b.Path, int32(port)
	c.Service = &apiextensionsv1.ServiceReference{Namespace: b.Service.Namespace, Name: b.Service.Name, Path: &path, Port: &port}
	return c
}

// patchOf is a merge patch after which the configuration is that.
func patchOf(c *apiextensionsv1.WebhookClientConfig) map[string]any {
	patch := map[string]any{"caBundle": c.CABundle, "url": nil, "service": nil}
	if c.URL != nil {
		patch["url"] = *c.URL
	}
	if c.Service != nil {
		patch["service"] = c.Service
	}
	return patch
}

// ours reports whether a configuration belongs to this controller: it has no certificates yet, names the Service of
// this controller, or trusts a root of its authority.
func (b *Bundles) ours(c *apiextensionsv1.WebhookClientConfig, bundle string) bool {
	if len(bytes.TrimSpace(c.CABundle)) == 0 {
		return true
	}
	if c.Service != nil && (Service{c.Service.Namespace, c.Service.Name}) == b.Service {
		return true
	}
	return shares(c.CABundle, []byte(bundle))
}
