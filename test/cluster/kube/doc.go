// Package kube holds internal/kube against a real API server: what it reads, and what it writes beside other writers. It
// has tests only.
package kube
