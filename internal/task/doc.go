// Package task runs the concurrent parts of a process, each for as long as the process runs or holds a lease. It does
// not know what the tasks do. "weir controller" has a list of them.
package task
