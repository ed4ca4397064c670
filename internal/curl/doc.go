// Package curl reads command lines of curl, and what reads like one: which request they send, and where to. It sends nothing, reads no file, and knows
// nothing of who will answer. "weir explain" takes requests in this form, as people and browsers have them at hand.
package curl
