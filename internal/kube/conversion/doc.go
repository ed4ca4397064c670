// Package conversion is the webhook by which an API server converts objects of custom resource definitions between
// versions: Handler answers it, behind kube/webhook.
//
// It knows no kind: package convert has tables of them.
package conversion
