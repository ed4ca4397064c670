package conversion

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// look is how often the definitions are checked: they may have been installed or replaced.
	look = 10 * time.Second
	// lookTimeout bounds that.
	lookTimeout = 10 * time.Second
)

// Bundles maintains spec.conversion of definitions: the webhook's place and its certificates. It changes nothing else
// in them, and does not change definitions with another webhook or none.
type Bundles struct {
	Client client.Client
	// Definitions are the names of the definitions.
	Definitions []string
	// Service and URL say where the webhook is; URL is empty, or goes first.
	Service apiextensionsv1.ServiceReference
	URL     string
	// Bundle returns the certificates to trust, as PEM; empty if they are not known yet. While the authority is rotated
	// they are those of the former root and of the next.
	Bundle func() string
	Logger *slog.Logger

	told map[string]string // what was last logged about each definition
}

// Run keeps them until ctx ends. woken has a value when Bundle may have changed.
func (b *Bundles) Run(ctx context.Context, woken <-chan struct{}) {
	b.told = map[string]string{}
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		for _, name := range b.Definitions {
			b.tell(name, b.keep(ctx, name))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-woken:
		}
	}
}

// tell logs why a definition cannot be maintained, when that changes.
func (b *Bundles) tell(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != b.told[name] {
		b.Logger.Error("registering the conversion webhook failed; trying again", "definition", name, "error", err)
	}
	b.told[name] = text
}

func (b *Bundles) keep(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	bundle := b.Bundle()
	if bundle == "" {
		return nil
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
		if apierrors.IsNotFound(err) || ctx.Err() != nil {
			return nil
		}
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
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": definition.ResourceVersion}, // so a concurrent change is read first
		"spec":     map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": patchOf(want)}}},
	})
	if err != nil {
		return err
	}
	err = b.Client.Patch(ctx, definition, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("weir"))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
		return nil // next time
	}
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
	path, port := Path, int32(443)
	if b.Service.Port != nil {
		port = *b.Service.Port
	}
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
	if c.Service != nil && c.Service.Namespace == b.Service.Namespace && c.Service.Name == b.Service.Name {
		return true
	}
	roots := certificates([]byte(bundle))
	for raw := range certificates(c.CABundle) {
		if roots[raw] {
			return true
		}
	}
	return false
}

// certificates are the certificates of a bundle, by their content. Other content is ignored.
func certificates(bundle []byte) map[string]bool {
	all := map[string]bool{}
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all[string(c.Raw)] = true
		}
	}
}
