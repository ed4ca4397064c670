package routing

import (
	"bytes"
	"strings"
)

// node is a node of a radix tree over the bytes of paths. Its key is the labels from the root down.
type node struct {
	label string
	// exact are the candidates whose path is the key. prefix are those for which the key is a prefix by segments. Both
	// are in order of precedence. The root has none: a path is not empty, and the prefix "/" is kept elsewhere.
	exact, prefix []*candidate
	// up is the nearest node above with prefix candidates that cover everything below this node: its key ends where a
	// segment of this key ends.
	up *node
	// depth is the length of the key.
	depth int
	// first holds the first bytes of the children's labels.
	first    []byte
	children []*node
}

// at returns the node for a key, inserting it if need be. No path may have been looked up yet.
func (n *node) at(key string) *node {
	for rest := key; rest != ""; {
		i := bytes.IndexByte(n.first, rest[0])
		if i < 0 {
			leaf := &node{label: rest, depth: len(key)}
			n.first = append(n.first, rest[0])
			n.children = append(n.children, leaf)
			return leaf
		}
		child := n.children[i]
		common := commonPrefix(child.label, rest)
		if common < len(child.label) {
			upper := &node{
				label: child.label[:common], depth: n.depth + common,
				first: []byte{child.label[common]}, children: []*node{child},
			}
			child.label = child.label[common:]
			n.children[i] = upper
			child = upper
		}
		rest = rest[common:]
		n = child
	}
	return n
}

// finish sorts the candidates and links the prefixes; up is the link of n itself.
func (n *node) finish(up *node) {
	n.up = up
	sortCandidates(n.exact)
	sortCandidates(n.prefix)
	for i, child := range n.children {
		if n.first[i] == '/' && len(n.prefix) > 0 {
			child.finish(n)
		} else {
			child.finish(up)
		}
	}
}

// find returns the exact candidates for the path and the node of the longest prefix of it; the shorter ones follow by
// its up links.
func (n *node) find(path string) (exact []*candidate, longest *node) {
	for rest := path; rest != ""; {
		i := bytes.IndexByte(n.first, rest[0])
		if i < 0 {
			return nil, longest
		}
		n = n.children[i]
		if !strings.HasPrefix(rest, n.label) {
			return nil, longest
		}
		rest = rest[len(n.label):]
		if len(n.prefix) > 0 && (rest == "" || rest[0] == '/') {
			longest = n
		}
		if rest == "" {
			return n.exact, longest
		}
	}
	return nil, nil
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
