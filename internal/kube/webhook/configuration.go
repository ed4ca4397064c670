package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Configuration names an object by which the API server is told whom to ask before it stores others.
type Configuration struct {
	// Kind is ValidatingWebhookConfiguration or MutatingWebhookConfiguration.
	Kind string
	Name string
}

// configuration maintains the certificates of webhooks that name this controller's Service. What they are asked about is
// for those to say who install them, and so is where they are: like an APIService, none is moved here.
func (b *Bundles) configuration(ctx context.Context, c Configuration, bundle string) error {
	o := configurationOf(c.Kind)
	if err := b.Client.Get(ctx, client.ObjectKey{Name: c.Name}, o); err != nil {
		return err
	}
	want := base64.StdEncoding.EncodeToString([]byte(bundle))
	all, _ := o.Object["webhooks"].([]any)
	ours, stale := 0, 0
	for _, w := range all {
		hook, _ := w.(map[string]any)
		config, _ := hook["clientConfig"].(map[string]any)
		service, _ := config["service"].(map[string]any)
		namespace, _ := service["namespace"].(string)
		name, _ := service["name"].(string)
		if (Service{namespace, name}) != b.Service {
			continue
		}
		if ours++; config["caBundle"] != want {
			config["caBundle"] = want
			stale++
		}
	}
	switch {
	case ours == 0 && len(all) > 0:
		return errors.New("webhooks: none has Service " + fmt.Sprintf("%s/%s", b.Service.Namespace, b.Service.Name) + ", so another program is asked: have one name it if Weir is to be asked")
	case stale == 0:
		return nil
	}
	err := b.patch(ctx, o, map[string]any{"webhooks": all})
	if err == nil {
		b.Logger.Info("admission webhook registered", "kind", c.Kind, "object", c.Name)
	}
	return err
}
