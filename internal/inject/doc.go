// Package inject changes a pod so that a sidecar stands beside its containers, or says why it does not; and it says what
// is wrong with a pod that should have one. It is pure: settings and a pod in, a decision out. The admission webhooks,
// "weir inject" and "weir check" use it, so that all three judge alike.
package inject
