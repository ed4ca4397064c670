package webhook

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// look is how often the objects are checked: they may have been installed or replaced.
	look = 10 * time.Second
	// lookTimeout bounds the check of one.
	lookTimeout = 10 * time.Second
)

// Bundles maintains the certificates by which the API server trusts this controller, in the objects that send it here:
// of custom resource definitions spec.conversion, the webhook's place and its certificates; of APIServices
// spec.caBundle; of admission webhooks clientConfig.caBundle. It changes nothing else in them, and none that belongs to
// another program.
type Bundles struct {
	Client client.Client
	// Definitions are the names of the definitions.
	Definitions []string
	// APIServices are the names of the APIServices, as their installation made them.
	APIServices []string
	// Configurations are those of admission webhooks, as their installation made them.
	Configurations []Configuration
	// Service is where the API server finds the controller, at port 443.
	Service Service
	// Path is where the Service converts; URL, if not empty, is where conversions are asked for instead.
	Path, URL string
	// Bundle returns the certificates to trust, as PEM; empty if they are not known yet. While the authority is rotated
	// they are those of the former root and of the next.
	Bundle func() string
	Logger *slog.Logger

	told map[string]string // what was last logged about each object
}

// Service is a Service's name.
type Service struct{ Namespace, Name string }

// port is the Service's.
const port = 443

// Run keeps them until ctx ends. woken has a value when Bundle may have changed.
func (b *Bundles) Run(ctx context.Context, woken <-chan struct{}) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		b.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-woken:
		}
	}
}

// look checks all objects once.
func (b *Bundles) look(ctx context.Context) {
	bundle := b.Bundle()
	if bundle == "" {
		return
	}
	check := func(kind, name string, one func(ctx context.Context, name, bundle string) error) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		err := one(ctx, name, bundle)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
			err = nil // nothing to maintain, or next time
		}
		b.tell(kind, name, err)
	}
	for _, name := range b.Definitions {
		check("CustomResourceDefinition", name, b.definition)
	}
	for _, name := range b.APIServices {
		check("APIService", name, b.apiService)
	}
	for _, c := range b.Configurations {
		check(c.Kind, c.Name, func(ctx context.Context, _, bundle string) error { return b.configuration(ctx, c, bundle) })
	}
}

// tell logs why an object is not maintained, when that changes.
func (b *Bundles) tell(kind, name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	key := kind + " " + name
	if text != "" && text != b.told[key] {
		b.Logger.Error("registering with the API server failed; trying again", "kind", kind, "object", name, "error", err)
	}
	if b.told == nil {
		b.told = map[string]string{}
	}
	b.told[key] = text
}

// patch changes fields of an object that was read, unless it has been changed since then.
func (b *Bundles) patch(ctx context.Context, o client.Object, fields map[string]any) error {
	patch, err := mergePatch(o, fields)
	if err != nil {
		return err
	}
	return b.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("weir"))
}

// mergePatch is a patch of fields of an object that was read, for that version alone.
func mergePatch(o client.Object, fields map[string]any) ([]byte, error) {
	fields["metadata"] = map[string]any{"resourceVersion": o.GetResourceVersion()}
	return json.Marshal(fields)
}

// shares reports whether two bundles have a certificate in common.
func shares(a, b []byte) bool {
	theirs := certificates(b)
	for raw := range certificates(a) {
		if theirs[raw] {
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
