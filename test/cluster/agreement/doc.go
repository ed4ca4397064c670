// Package agreement holds Weir's offline validation against a real API server: what internal/resource says of a
// manifest without a cluster must be what the API server says. It has tests only.
package agreement
