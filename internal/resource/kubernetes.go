package resource

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// kubernetes are the kinds of Kubernetes itself that are read. They have no definition, so what decodes them is here.
var kubernetes = Kinds{
	{
		Name: "Service", Plural: "services", Versions: []string{"v1"}, Decoder: core(checkService), Essential: true,
		Objects: ListIn(func(s *Set) *[]*corev1.Service { return &s.Services }),
		Unlike:  []string{"ServiceEntry", "ServiceImport", "ServiceAccount"}, Effects: FieldEffects,
	},
	{
		Name: "Endpoints", Plural: "endpoints", Versions: []string{"v1"}, Decoder: Decoder{decode: decodeEndpoints}, FilesOnly: true, Effects: FieldEffects,
	},
	{
		Name: "Secret", Plural: "secrets", Versions: []string{"v1"}, Decoder: core(checkSecret), OnReference: true,
		Objects: ListIn(func(s *Set) *[]*corev1.Secret { return &s.Secrets }), Effects: FieldEffects,
	},
	{
		Name: "ConfigMap", Plural: "configmaps", Versions: []string{"v1"}, Decoder: core(checkConfigMap), OnReference: true,
		Objects: ListIn(func(s *Set) *[]*corev1.ConfigMap { return &s.ConfigMaps }), Effects: FieldEffects,
	},
	{
		Name: "Namespace", Plural: "namespaces", Cluster: true, Versions: []string{"v1"}, Decoder: core(checkNamespace), Essential: true,
		Objects: ListIn(func(s *Set) *[]*corev1.Namespace { return &s.Namespaces }), Effects: FieldEffects,
	},
	{
		Group: discoveryv1.GroupName, Name: "EndpointSlice", Plural: "endpointslices", Versions: []string{"v1"}, Decoder: Decoder{decode: decodeEndpointSlice},
		Essential: true, Label: discoveryv1.LabelServiceName,
		Objects: ListIn(func(s *Set) *[]*discoveryv1.EndpointSlice { return &s.EndpointSlices }), Effects: FieldEffects,
	},
}

// Kubernetes returns the kinds of Kubernetes itself that are read.
func Kubernetes() Kinds { return kubernetes[:len(kubernetes):len(kubernetes)] }
