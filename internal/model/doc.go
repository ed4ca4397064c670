// Package model is the routing model: the one form into which every dialect is translated and from which the
// data plane is compiled. It is plain data with a JSON form (the dump, the goldens and the wire use it), its
// validation, and the merge of several configurations in a fixed order.
//
// It is also where values are judged: what a path, a pattern, a host name or a header may be. Front ends, Validate and the
// data plane ask the same functions (NormalizePath, TargetPath, CheckPattern, CheckHostname and so on), so that none takes
// what another refuses. What is not valid all the same, Config.Sound leaves out, and nothing else.
//
// It holds no other behaviour of the data plane (see routing) and knows no API of Kubernetes (see dialect).
package model
