// Package model is the routing model: the one form into which every dialect is translated and from which the
// data plane is compiled. It is plain data with a JSON form (the dump, the goldens and the wire use it), its
// validation, and the merge of several configurations in a fixed order.
//
// It holds no behaviour of the data plane (see routing) and knows no API of Kubernetes (see dialect).
package model
