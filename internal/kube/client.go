package kube

import (
	"log/slog"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Scheme returns the kinds that Weir reads and creates, except for SMI's, whose versions differ.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme, gatewayv1.Install,
	} {
		if err := add(scheme); err != nil {
			panic(err) // the types are part of the binary
		}
	}
	return scheme
}

// Client is an API server, for the parts of this package. Several goroutines may use it at the same time.
type Client struct {
	// Client reads from the API server itself, never from a cache.
	client.Client
	Config *rest.Config

	http      *http.Client
	discovery *discovery.DiscoveryClient
}

// NewClient makes a client. It sends no request to the API server yet.
func NewClient(config *rest.Config) (*Client, error) {
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, hc)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{HTTPClient: hc, Scheme: Scheme(), Mapper: mapper})
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, hc)
	if err != nil {
		return nil, err
	}
	return &Client{Client: c, Config: config, http: hc, discovery: d}, nil
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// SetLogger sets the logger of Kubernetes' libraries.
func SetLogger(logger *slog.Logger) {
	crlog.SetLogger(logr.FromSlogHandler(logger.Handler()))
	klog.SetSlogLogger(logger)
}

// Quiet has Kubernetes' libraries log nothing, for commands whose errors say everything relevant.
var Quiet = sync.OnceFunc(func() { SetLogger(slog.New(slog.DiscardHandler)) })

// mapper returns a mapper for one kind, so that no discovery is needed.
func mapper(gvk schema.GroupVersionKind, resource string, cluster bool) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{gvk.GroupVersion()})
	scope := meta.RESTScopeNamespace
	if cluster {
		scope = meta.RESTScopeRoot
	}
	m.AddSpecific(gvk, gvk.GroupVersion().WithResource(resource), gvk.GroupVersion().WithResource(resource), scope)
	return m
}
