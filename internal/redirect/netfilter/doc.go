// Package netfilter sets the rules of a redirect in the network namespace of its process, through netlink and without
// other programs, reads back what there is, and is the command that does so. Of Weir, the data plane's binary and the
// command line use it, and nothing else: it brings the netlink libraries.
package netfilter
