// Package edit reads and changes objects that belong to users: the workloads, Services and routes of Rollouts. It is the
// one place for that. Objects are read from caches that are filled when a kind is needed for the first time, and written
// whole, at the version that was read, so that nobody's change and no field is lost. What was written is what is read
// next, however late the caches are.
package edit
