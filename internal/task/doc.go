// Package task runs what a process does for as long as it runs, or for as long as it holds a lease, each part beside the others. It knows nothing of what
// they do. "weir controller" has a list of them.
package task
