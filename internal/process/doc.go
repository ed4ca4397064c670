// Package process holds what a long-running process of Weir has beside its work: signals, the log, the admin endpoint and who may see it, the
// handover of listening sockets to a successor, what the machine allows, and which build this is. It knows neither configurations nor Kubernetes; the
// data plane and the controller use it.
package process
