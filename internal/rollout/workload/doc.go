// Package workload says how the pods of a workload are replaced as a release wants, for each kind of workload: what of it
// is observed, what is changed to hold it, to give the new version its pods and to let it go, and what has to be done
// meanwhile. It is pure: it is given objects as they were read, leaves them alone, and returns changes to carry out.
//
// A workload is held by fields of its spec that keep its own controller from replacing pods. How its user has these fields
// is in a Record, which the Rollout keeps in an annotation: annotations of a Deployment are no place for it, since they are
// copied to its ReplicaSets, and come back with "kubectl rollout undo".
package workload
