// Package access says who may do what to whom, and why: for one call (Served.Explain) and for all of a configuration
// (Served.Matrix), as data and as text. It judges by internal/policy, as proxies do; it sends and changes nothing.
package access
