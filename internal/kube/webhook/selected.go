package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Selected keeps webhooks about the objects of namespaces that only the controller can name. They are copies of a webhook
// that the installation made, for other namespaces, in configurations of their own, which the installation made without
// any webhooks. So an upgrade of the installation does not set back which namespaces they have.
type Selected struct {
	Client client.Client
	// Kinds are ValidatingWebhookConfiguration, MutatingWebhookConfiguration or both, with the copies that each has.
	Kinds map[string][]Copy
	// From and Hook are the configuration and its webhook that are copied, To the configuration of the copies.
	From, Hook, To string
	// Label is the key of the label of namespaces by which the copied webhook chooses them. Namespaces and objects that have it
	// with one of the values of Out are left out by the copies.
	Label string
	Out   []string
	// Namespaces returns those whose objects the copies are about, sorted, and whether they are known. While there are none,
	// there are no copies.
	Namespaces func() (all []string, known bool)
	// Bundle returns the certificates to trust, as PEM; empty if they are not known yet.
	Bundle func() string
	Logger *slog.Logger

	told map[string]string // what was last logged about each configuration
}

// Copy is a copy of a webhook.
type Copy struct {
	// Name is the webhook's name, Path where its Service is asked.
	Name, Path string
	// Objects are those whose Label has one of these values; empty means all but those of Selected.Out.
	Objects []string
	// Advises means that objects are stored as well if nobody answers, at once.
	Advises bool
}

// nameLabel is the label of every namespace that has its name.
const nameLabel = "kubernetes.io/metadata.name"

// Run keeps them until ctx ends. woken has a value when Namespaces or Bundle may return something else.
func (s *Selected) Run(ctx context.Context, woken <-chan struct{}) error {
	s.told = map[string]string{}
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var wrote []string
	var bundle string
	always := true
	for {
		names, known := s.Namespaces()
		if now := s.Bundle(); known && now != "" && (always || now != bundle || !slices.Equal(names, wrote)) {
			if s.look(ctx, names, now) {
				wrote, bundle = slices.Clone(names), now
			} else {
				bundle = "" // not what it was taken for
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			always = true
		case <-woken:
			always = false
		}
	}
}

// look brings the configurations to what they are to be, and reports whether all are.
func (s *Selected) look(ctx context.Context, names []string, bundle string) (all bool) {
	all = true
	for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
		one, cancel := context.WithTimeout(ctx, lookTimeout)
		err := s.keep(one, kind, names, bundle)
		cancel()
		if ctx.Err() != nil {
			return false
		}
		all = all && err == nil
		if apierrors.IsConflict(err) {
			err = nil // next time
		}
		s.tell(kind, err)
	}
	return all
}

// keep writes the copies of one configuration.
func (s *Selected) keep(ctx context.Context, kind string, names []string, bundle string) error {
	from, to := configurationOf(kind), configurationOf(kind)
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.To}, to); err != nil {
		return err
	}
	var want []any
	if len(names) > 0 {
		if err := s.Client.Get(ctx, client.ObjectKey{Name: s.From}, from); err != nil {
			return err
		}
		all, _ := from.Object["webhooks"].([]any)
		at := slices.IndexFunc(all, func(w any) bool { hook, _ := w.(map[string]any); return hook["name"] == s.Hook })
		if at < 0 {
			return fmt.Errorf("%s has no webhook %s, of which those of %s are copies: install the configuration of this release", s.From, s.Hook, s.To)
		}
		for _, c := range s.Kinds[kind] {
			hook, err := s.copyOf(all[at].(map[string]any), c, names, bundle)
			if err != nil {
				return fmt.Errorf("%s, webhook %s: %w", s.From, s.Hook, err)
			}
			want = append(want, hook)
		}
	}
	have, _ := to.Object["webhooks"].([]any)
	if len(have) == 0 && len(want) == 0 || equality.Semantic.DeepEqual(have, want) {
		return nil
	}
	patch, err := mergePatch(to, map[string]any{"webhooks": want})
	if err != nil {
		return err
	}
	if err = s.Client.Patch(ctx, to, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("weir")); err == nil {
		s.Logger.Info("API servers ask about pods for the sake of TLSConfigs", "kind", kind, "object", s.To, "namespaces", len(names))
	}
	return err
}

// copyOf is a copy of a webhook, for namespaces.
func (s *Selected) copyOf(hook map[string]any, c Copy, names []string, bundle string) (map[string]any, error) {
	out := (&unstructured.Unstructured{Object: hook}).DeepCopy().Object
	service, _ := out["clientConfig"].(map[string]any)["service"].(map[string]any)
	if service == nil {
		return nil, errors.New("clientConfig.service: is missing")
	}
	out["name"], service["path"] = c.Name, c.Path
	out["clientConfig"] = map[string]any{"service": service, "caBundle": base64.StdEncoding.EncodeToString([]byte(bundle))}
	if c.Advises {
		out["failurePolicy"], out["timeoutSeconds"] = "Ignore", int64(1)
	}
	selector, _ := out["namespaceSelector"].(map[string]any)
	before, _ := selector["matchExpressions"].([]any)
	expressions := []any{requirement(nameLabel, "In", names), requirement(s.Label, "NotIn", s.Out)}
	for _, e := range before {
		if one, _ := e.(map[string]any); one["key"] != s.Label {
			expressions = append(expressions, e)
		}
	}
	out["namespaceSelector"] = map[string]any{"matchExpressions": expressions}
	if len(c.Objects) > 0 {
		out["objectSelector"] = map[string]any{"matchExpressions": []any{requirement(s.Label, "In", c.Objects)}}
	}
	return out, nil
}

func requirement(key, operator string, values []string) map[string]any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return map[string]any{"key": key, "operator": operator, "values": all}
}

func configurationOf(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{} // the list is written as a whole, with fields of newer API servers
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
	return o
}

// tell logs why a configuration is not what it is to be, when that changes.
func (s *Selected) tell(kind string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.told[kind] {
		s.Logger.Error("pods that TLSConfigs select get no sidecar by them; trying again", "kind", kind, "object", s.To, "error", err)
	}
	s.told[kind] = text
}
