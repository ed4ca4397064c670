// Package aggregated puts a handler behind the Kubernetes API server, as an API of an APIService. The API server says who
// asks, and proves by a certificate that it is the one who says so. It is asked in turn whether they may: the roles of
// the cluster hold for the API as for any other, and nobody who comes another way is served.
//
// It is built of the parts of k8s.io/apiserver that read what the API server says. It is not that library's server,
// which stores objects; and it asks for reviews by itself, since the library's own asker brings a gRPC stack along.
package aggregated
