package model

import "strings"

// GatewayKey names a Gateway: "namespace/name". It is empty for no Gateway.
type GatewayKey string

// GatewayOf returns the key of a Gateway.
func GatewayOf(namespace, name string) GatewayKey { return GatewayKey(namespace + "/" + name) }

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
