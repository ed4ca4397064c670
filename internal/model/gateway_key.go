package model

import "strings"

// GatewayKey names a Gateway: "namespace/name". It is empty for no Gateway.
type GatewayKey string

// GatewayOf returns the key of a Gateway.
func GatewayOf(namespace, name string) GatewayKey { return GatewayKey(namespace + "/" + name) }

// GatewayOfListener returns the Gateway of a listener by its name in the model (Listener.Name) and the object that it was written in; empty for one
// that no Gateway has.
func GatewayOfListener(name string, ref Ref) GatewayKey {
	if ref.Kind != "Gateway" && ref.Kind != "ListenerSet" {
		return ""
	}
	namespace, rest, _ := strings.Cut(name, "/")
	gateway, _, _ := strings.Cut(rest, "/")
	return GatewayOf(namespace, gateway)
}

// Namespace is the Gateway's.
func (k GatewayKey) Namespace() string {
	namespace, _, _ := strings.Cut(string(k), "/")
	return namespace
}

// Name is the Gateway's, without the namespace.
func (k GatewayKey) Name() string {
	_, name, _ := strings.Cut(string(k), "/")
	return name
}

// Valid is true for keys that have exactly two parts, both not empty.
func (k GatewayKey) Valid() bool {
	namespace, name, ok := strings.Cut(string(k), "/")
	return ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// Ref is the Gateway as provenance.
func (k GatewayKey) Ref() Ref { return Ref{Kind: "Gateway", Namespace: k.Namespace(), Name: k.Name()} }
