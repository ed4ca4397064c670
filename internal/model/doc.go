// Package model is the routing model: every dialect is translated into it, and the data plane is compiled from it. It
// is plain data with a JSON form, which the dump, the golden files and the wire use. The package also validates the
// model and merges several configurations in a fixed order.
//
// It also judges values: which paths, patterns, host names and headers are allowed. Front ends, Validate and the data
// plane call the same functions (NormalizePath, TargetPath, CheckPattern, CheckHostname and so on), so that all of them
// accept and refuse the same values. If an invalid value gets into a configuration nevertheless, Config.Sound leaves
// out that value and nothing else.
//
// It has no other behaviour of the data plane (see routing), and knows no API of Kubernetes (see dialect).
package model
