// Package trust keeps the ConfigMap by which sidecars know the controller, in each namespace that has sidecars. The
// leader runs it. It changes no ConfigMap of others.
package trust
