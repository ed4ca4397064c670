package resource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/internal/model"
)

type name struct{ namespace, name string }

// place is where an object was read.
type place struct {
	origin Origin
	fields Fields
}

// index is built on the first look-up, so that a Set written as a literal has one too.
type index struct {
	gatewayClasses map[string]*gatewayv1.GatewayClass
	gateways       map[name]*gatewayv1.Gateway
	routeGroups    map[name]*specs.HTTPRouteGroup
	services       map[name]*corev1.Service
	slices         map[name][]*discoveryv1.EndpointSlice
	secrets        map[name]*corev1.Secret
	configMaps     map[name]*corev1.ConfigMap
	namespaces     map[string]*corev1.Namespace
	grants         map[string][]*gatewayv1.ReferenceGrant // by namespace
	origins        map[model.Ref]place
	written        map[Key]bool // kinds and namespaces that have objects; without a name
}

func (s *Set) indexed() *index {
	s.once.Do(func() {
		x := &s.index
		x.gatewayClasses = make(map[string]*gatewayv1.GatewayClass, len(s.GatewayClasses))
		for _, o := range s.GatewayClasses {
			x.gatewayClasses[o.Name] = o
		}
		x.gateways = make(map[name]*gatewayv1.Gateway, len(s.Gateways))
		for _, o := range s.Gateways {
			x.gateways[name{o.Namespace, o.Name}] = o
		}
		x.routeGroups = make(map[name]*specs.HTTPRouteGroup, len(s.HTTPRouteGroups))
		for _, o := range s.HTTPRouteGroups {
			x.routeGroups[name{o.Namespace, o.Name}] = o
		}
		x.services = make(map[name]*corev1.Service, len(s.Services))
		for _, o := range s.Services {
			x.services[name{o.Namespace, o.Name}] = o
		}
		x.slices = make(map[name][]*discoveryv1.EndpointSlice, len(s.EndpointSlices))
		for _, o := range s.EndpointSlices {
			if service := o.Labels[discoveryv1.LabelServiceName]; service != "" {
				n := name{o.Namespace, service}
				x.slices[n] = append(x.slices[n], o)
			}
		}
		x.secrets = make(map[name]*corev1.Secret, len(s.Secrets))
		for _, o := range s.Secrets {
			x.secrets[name{o.Namespace, o.Name}] = o
		}
		x.configMaps = make(map[name]*corev1.ConfigMap, len(s.ConfigMaps))
		for _, o := range s.ConfigMaps {
			x.configMaps[name{o.Namespace, o.Name}] = o
		}
		x.namespaces = make(map[string]*corev1.Namespace, len(s.Namespaces))
		for _, o := range s.Namespaces {
			x.namespaces[o.Name] = o
		}
		x.grants = make(map[string][]*gatewayv1.ReferenceGrant)
		for _, o := range s.ReferenceGrants {
			x.grants[o.Namespace] = append(x.grants[o.Namespace], o)
		}
		x.written = make(map[Key]bool)
		for k := range s.Origins {
			x.written[Key{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace}] = true
		}
		x.origins = make(map[model.Ref]place, len(s.Origins))
		for k, o := range s.Origins {
			x.origins[k.Ref()] = place{o, s.Fields[k]}
		}
	})
	return &s.index
}

// GatewayClass returns the class of that name, or nil.
func (s *Set) GatewayClass(class string) *gatewayv1.GatewayClass {
	return s.indexed().gatewayClasses[class]
}

// Gateway returns the Gateway namespace/gateway, or nil.
func (s *Set) Gateway(namespace, gateway string) *gatewayv1.Gateway {
	return s.indexed().gateways[name{namespace, gateway}]
}

// HTTPRouteGroup returns the HTTPRouteGroup namespace/group, or nil.
func (s *Set) HTTPRouteGroup(namespace, group string) *specs.HTTPRouteGroup {
	return s.indexed().routeGroups[name{namespace, group}]
}

// Service returns the Service namespace/service, or nil.
func (s *Set) Service(namespace, service string) *corev1.Service {
	return s.indexed().services[name{namespace, service}]
}

// StableOf returns the Service beside which a release made another one for the pods of the new version: NAME for one with
// the name NAME-canary that a Rollout controls, whoever carries that out. It is nil for all other Services. What is said
// of the one, by annotations or by policies that target it, holds for the other.
func (s *Set) StableOf(service *corev1.Service) *corev1.Service {
	if service == nil {
		return nil
	}
	stable, ok := strings.CutSuffix(service.Name, "-canary")
	if !ok {
		return nil
	}
	by := metav1.GetControllerOfNoCopy(service)
	if by == nil || by.Kind != "Rollout" || !strings.HasPrefix(by.APIVersion, rolloutGroup+"/") {
		return nil
	}
	return s.Service(service.Namespace, stable)
}

// rolloutGroup is the API group of Rollouts (OpenKruise).
const rolloutGroup = "rollouts.kruise.io"

// EndpointSlicesOf returns the slices that carry the label kubernetes.io/service-name of that Service, by name.
func (s *Set) EndpointSlicesOf(namespace, service string) []*discoveryv1.EndpointSlice {
	return s.indexed().slices[name{namespace, service}]
}

// Secret returns the Secret namespace/secret, or nil.
func (s *Set) Secret(namespace, secret string) *corev1.Secret {
	return s.indexed().secrets[name{namespace, secret}]
}

// ConfigMap returns the ConfigMap namespace/configMap, or nil.
func (s *Set) ConfigMap(namespace, configMap string) *corev1.ConfigMap {
	return s.indexed().configMaps[name{namespace, configMap}]
}

// Namespace returns the Namespace object of that name, or nil: a set need not hold the namespaces its objects are in.
func (s *Set) Namespace(namespace string) *corev1.Namespace {
	return s.indexed().namespaces[namespace]
}

// NamespaceLabels returns the labels of a namespace, whether or not the set holds its object; kubernetes.io/metadata.name
// is always among them, as in a cluster.
func (s *Set) NamespaceLabels(namespace string) map[string]string {
	var written map[string]string
	if o := s.Namespace(namespace); o != nil {
		written = o.Labels
	}
	if written[corev1.LabelMetadataName] == namespace {
		return written
	}
	labels := make(map[string]string, len(written)+1)
	for k, v := range written {
		labels[k] = v
	}
	labels[corev1.LabelMetadataName] = namespace
	return labels
}

// Origin returns where the target of a reference was read: the field, or the innermost part of its path that is
// written, or the object if the reference has no field. It is zero if the set does not know, or is nil.
func (s *Set) Origin(ref model.Ref) Origin {
	if s == nil {
		return Origin{}
	}
	field := ref.Field
	ref.Field = ""
	at := s.indexed().origins[ref]
	if line := at.fields.Line(field); line > 0 {
		at.origin.Line = line
	}
	return at.origin
}
