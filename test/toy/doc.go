// Package toy is a front end that Weir does not have: what it takes to add a kind is in this folder. Its tests, and one against a real API
// server in test/cluster/kube, hold that a folder and a descriptor are enough for it to be read, checked, served, reported and documented.
package toy
