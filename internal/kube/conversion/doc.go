// Package conversion is the webhook by which an API server converts objects of custom resource definitions between
// versions: Handler answers it, and Bundles tells the API server where it is and by which certificates it is known.
//
// It knows no kind: those are tables of package convert. The controller runs the handler in every replica and Bundles in
// the leader.
package conversion
