// Package curl parses curl command lines, and similar ones: it returns the request that they send, and where to. It
// sends nothing, reads no file, and does not know who will answer. "weir explain" accepts requests in this form,
// because people and browsers have them at hand.
package curl
