package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServiceKind is the kind by which the API server is told who serves a group's version. Its Go types are in a module
// of which nothing else is needed.
var apiServiceKind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// apiService maintains the certificates of one that names this controller's Service. Who serves an API is for those to
// say who install it: unlike the webhook of a definition, it is never moved here.
func (b *Bundles) apiService(ctx context.Context, name, bundle string) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(apiServiceKind)
	if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return err
	}
	spec, _ := o.Object["spec"].(map[string]any)
	service, _ := spec["service"].(map[string]any)
	if service == nil {
		return errors.New("spec.service: the API server serves this group itself, such as by a CustomResourceDefinition of the group: remove that if Weir is to serve it")
	}
	namespace, _ := service["namespace"].(string)
	text, _ := service["name"].(string)
	if (Service{namespace, text}) != b.Service {
		return fmt.Errorf("spec.service: is %s/%s, so another program serves this group: have it name %s/%s if Weir is to serve it", namespace, text, b.Service.Namespace, b.Service.Name)
	}
	if insecure, _ := spec["insecureSkipTLSVerify"].(bool); insecure {
		return errors.New("spec.insecureSkipTLSVerify: is true, so the API server would not know the controller from others: remove it")
	}
	want := base64.StdEncoding.EncodeToString([]byte(bundle))
	if spec["caBundle"] == want {
		return nil
	}
	err := b.patch(ctx, o, map[string]any{"spec": map[string]any{"caBundle": want}})
	if err == nil {
		b.Logger.Info("API registered", "apiService", name)
	}
	return err
}
