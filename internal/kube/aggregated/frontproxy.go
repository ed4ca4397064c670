package aggregated

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configMap is where an API server says how it identifies itself to APIs behind it.
var configMap = client.ObjectKey{Namespace: "kube-system", Name: "extension-apiserver-authentication"}

const (
	// look is how often that is read, retry the pause after a failure; it doubles with each further one, up to look.
	look, retry = 30 * time.Second, time.Second
	lookTimeout = 10 * time.Second
)

// frontProxy knows requests that an API server sends on, and who sent them.
type frontProxy struct {
	data          map[string]string // it is made of
	authenticator authenticator.Request
}

// user is who sent a request, by the word of the API server; ok is false if it did not send it on. Fields that say so are
// removed from the request.
func (p *frontProxy) user(r *http.Request) (user.Info, bool) {
	response, ok, err := p.authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		return nil, false
	}
	return response.User, true
}

// newFrontProxy reads the API server's ConfigMap.
func newFrontProxy(data map[string]string) (*frontProxy, error) {
	const authority = "requestheader-client-ca-file"
	roots := x509.NewCertPool()
	switch {
	case data[authority] == "":
		return nil, errors.New(authority + ": is missing, so the API server sends no requests on (its flag --requestheader-client-ca-file)")
	case !roots.AppendCertsFromPEM([]byte(data[authority])):
		return nil, errors.New(authority + ": has no certificate")
	}
	lists := map[string]headerrequest.StaticStringSlice{}
	for _, key := range []string{"allowed-names", "username-headers", "uid-headers", "group-headers", "extra-headers-prefix"} {
		key = "requestheader-" + key
		if data[key] == "" {
			continue
		}
		var list []string
		if err := json.Unmarshal([]byte(data[key]), &list); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		lists[key] = list
	}
	options := requestx509.DefaultVerifyOptions()
	options.Roots = roots
	proved := headerrequest.NewDynamicVerifyOptionsSecure(
		func() (x509.VerifyOptions, bool) { return options, true },
		lists["requestheader-allowed-names"], lists["requestheader-username-headers"], lists["requestheader-uid-headers"],
		lists["requestheader-group-headers"], lists["requestheader-extra-headers-prefix"],
	)
	return &frontProxy{data, group.NewAuthenticatedGroupAdder(proved)}, nil
}

// Run keeps up with how the API server identifies itself, until ctx ends, which is no error.
func (a *API) Run(ctx context.Context) error {
	wait := retry
	told := ""
	for {
		pause := look
		if err := a.read(ctx); err == nil {
			wait, told = retry, ""
		} else if ctx.Err() == nil {
			if err.Error() != told {
				told = err.Error()
				a.Logger.Error("reading how the API server identifies itself failed; trying again", "configMap", configMap.String(), "error", err)
			}
			pause, wait = wait, min(2*wait, look)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// read takes what the ConfigMap says. While it cannot be read, what it said last holds; if it says nothing of use, nobody
// is served.
func (a *API) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	m := &corev1.ConfigMap{}
	err := a.Client.Get(ctx, configMap, m)
	switch {
	case apierrors.IsNotFound(err):
		a.proxy.Store(nil)
		return err
	case err != nil:
		return err
	}
	if now := a.proxy.Load(); now != nil && maps.Equal(now.data, m.Data) {
		return nil
	}
	next, err := newFrontProxy(m.Data)
	a.proxy.Store(next) // nil if it cannot be
	return err
}
