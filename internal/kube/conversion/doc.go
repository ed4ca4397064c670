// Package conversion is the webhook by which an API server converts objects of custom resource definitions between
// versions: Handler answers it, and Bundles tells the API server where it is and which certificates to trust.
//
// It knows no kind: package convert has tables of them. The controller runs the handler in every replica and Bundles in
// the leader.
package conversion
