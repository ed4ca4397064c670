// Package inject changes a pod so that a sidecar stands beside its containers. It is pure: a pod in, what to change out.
package inject
