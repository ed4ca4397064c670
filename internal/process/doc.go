// Package process holds what a long-running process of Weir has besides its work: signals, the log, the admin endpoint
// and its access rules, the handover of listening sockets to a successor, the machine's limits, memory that only the
// start needed, and the build's version. It knows neither configurations nor Kubernetes; the data plane and the
// controller use it.
package process
