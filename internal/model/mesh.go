package model

import (
	"cmp"
	"slices"
)

// ServiceRoute is a route whose parent is a port of a Service: it is about what clients in a mesh send to the Service's address
// (Gateway API, GEP-1294).
type ServiceRoute struct {
	// Service is the Name of the port's service.
	Service string `json:"service"`
	// Clients is the namespace whose clients it is about: a consumer's route. Empty is a producer's, about the clients of all
	// namespaces that have no route of their own for the port.
	Clients string `json:"clients,omitempty"`
	// Only means that the route names the port: then all connections to it are what the route carries. Otherwise it is about
	// all ports of the Service, and a port of which nobody says what it carries may have other connections, too.
	Only bool `json:"only,omitempty"`
	// Route has no attachments.
	Route Route `json:"route"`
}

// SortServiceRoutes puts them in the order in which all results have them.
func SortServiceRoutes(all []ServiceRoute) {
	slices.SortStableFunc(all, func(a, b ServiceRoute) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Clients, b.Clients), a.Route.Created.Compare(b.Route.Created), a.Route.Ref.Compare(b.Route.Ref))
	})
}
