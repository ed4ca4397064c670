// Package redirect says what of a pod's traffic goes through its sidecar: a Plan, read from annotations or flags, the
// rules that carry it out, as data and as text, and which pods cannot have it. It is pure and runs anywhere;
// redirect/netfilter sets the rules in a network namespace. Webhooks, the command that sets the redirect, and the
// sidecar use it.
package redirect
