package agreement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/api/specs"
	splits "github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube/conversion"
	"github.com/weirmesh/weir/internal/kube/webhook"
)

// converter is the webhook that converts versions for the API server: Weir's, but for the rest of a controller.
var converter *apiextensionsv1.WebhookClientConfig

// convertVersions runs it until stop is called.
func convertVersions(ctx context.Context) (stop func() error, err error) {
	authority, err := identity.New(time.Now())
	if err != nil {
		return nil, err
	}
	certificate := &identity.Server{Subject: identity.Subject{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}}
	certificate.Use(authority)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	handler := &conversion.Handler{Kinds: slices.Concat(splits.Kinds(), specs.Kinds(), access.Kinds())}
	reviews := &webhook.Reviews{Paths: map[string]webhook.Answer{conversion.Path: handler.Answer}}
	go func() { ended <- webhook.Serve(ctx, l, reviews, certificate.Certificate) }()
	url := "https://" + l.Addr().String() + conversion.Path
	converter = &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: authority.Bundle()}
	return func() error {
		cancel()
		err := <-ended
		if handler.Stats().Answered == 0 {
			err = errors.Join(err, errors.New("the API server had nothing converted"))
		}
		return err
	}, nil
}

// redirect has a definition's versions converted by the webhook.
func redirect(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if c := crd.Spec.Conversion; c == nil || c.Webhook == nil {
		return nil
	}
	for {
		crd.Spec.Conversion.Webhook.ClientConfig = converter
		text, err := json.Marshal(crd)
		if err != nil {
			return err
		}
		a, err := send(ctx, http.MethodPut, definitionsPath+"/"+crd.Name, string(text))
		if err != nil || a.code == http.StatusOK {
			return err
		}
		if a.code != http.StatusConflict {
			return fmt.Errorf("%d %s", a.code, a.body)
		}
		// The API server has written a condition meanwhile.
		if a, err = send(ctx, http.MethodGet, definitionsPath+"/"+crd.Name, ""); err != nil {
			return err
		}
		*crd = apiextensionsv1.CustomResourceDefinition{}
		if err := json.Unmarshal(a.body, crd); err != nil {
			return err
		}
	}
}
