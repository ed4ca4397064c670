package policy

import (
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// entry is one path of a policy with the policy's other conditions on requests.
type entry struct {
	policy *model.Policy
	// path is nil if every path with the node's key is allowed.
	path *model.Pattern
	// methods are empty for any.
	methods []string
	headers []condition
	// everyPath means that the policy allows every path, ambiguous ones among them.
	everyPath bool
}

// condition is that a header field has a value.
type condition struct {
	name, value string
	pattern     *model.Pattern // nil: the value itself
}

// node is a node of a radix tree over the bytes of paths. Its key, the labels from the root down, is literal text that
// every path which the entries allow begins with.
type node struct {
	label    string
	entries  []entry
	first    []byte // of the children's labels
	children []*node
}

// add puts an entry at its key. Entries that say the same are one.
func (n *node) add(key string, e entry) {
	for rest := key; rest != ""; {
		i := slices.Index(n.first, rest[0])
		if i < 0 {
			leaf := &node{label: rest}
			n.first, n.children = append(n.first, rest[0]), append(n.children, leaf)
			n, rest = leaf, ""
			break
		}
		child := n.children[i]
		common := commonPrefix(child.label, rest)
		if common < len(child.label) {
			upper := &node{label: child.label[:common], first: []byte{child.label[common]}, children: []*node{child}}
			child.label = child.label[common:]
			n.children[i] = upper
			child = upper
		}
		n, rest = child, rest[common:]
	}
	if !slices.ContainsFunc(n.entries, e.same) {
		n.entries = append(n.entries, e)
	}
}

// same reports whether an entry of the same node allows the same.
func (e entry) same(o entry) bool {
	return e.path == o.path && e.everyPath == o.everyPath && slices.Equal(e.methods, o.methods) && slices.Equal(e.headers, o.headers)
}

// find returns an entry that the request meets, or nil.
func (n *node) find(j *judging) *entry {
	for rest := j.request.Path; ; {
		for i := range n.entries {
			if n.entries[i].meets(j) {
				return &n.entries[i]
			}
		}
		if rest == "" {
			return nil
		}
		i := slices.Index(n.first, rest[0])
		if i < 0 {
			return nil
		}
		n = n.children[i]
		if !strings.HasPrefix(rest, n.label) {
			return nil
		}
		rest = rest[len(n.label):]
	}
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

// judging is a request while it is judged.
type judging struct {
	request *Request
	port    int32
	// work is the cost of patterns so far, see model.MaxMatchWork.
	work int
	// ambiguous means that an entry was passed over only because the path is.
	ambiguous bool
}

// meets reports whether the request meets the entry, whose key its path begins with. What costs least is asked first.
func (e *entry) meets(j *judging) bool {
	if len(e.methods) > 0 && !slices.Contains(e.methods, j.request.Method) {
		return false
	}
	if j.request.Ambiguous && !e.everyPath {
		j.ambiguous = true
		return false
	}
	for i := range e.headers {
		if !e.headers[i].holds(j) {
			return false
		}
	}
	return (e.path == nil || j.matches(e.path, j.request.Path)) && j.request.onlyBy(e.methods)
}

// methodFields are fields by which many frameworks take another method than the one that the request has.
var methodFields = [...]string{"x-http-method-override", "x-http-method", "x-method-override"}

// onlyBy reports whether the methods that fields of the request name are among these methods, too; empty are all. Servers
// differ in whether they take them.
func (r *Request) onlyBy(methods []string) bool {
	if len(methods) == 0 || r.Fields == nil {
		return true
	}
	for _, name := range methodFields {
		if m, ok := r.Fields.Field(name); ok && !slices.Contains(methods, strings.ToUpper(m)) {
			return false
		}
	}
	return true
}

func (c *condition) holds(j *judging) bool {
	if j.request.Fields == nil {
		return false
	}
	value, ok := j.request.Fields.Field(c.name)
	if !ok {
		return false
	}
	if c.pattern == nil {
		return value == c.value
	}
	return j.matches(c.pattern, value)
}

// matches asks a pattern, unless that would be too much work: then nothing matches any more.
func (j *judging) matches(p *model.Pattern, value string) bool {
	if j.work += p.Work(len(value)); j.work > model.MaxMatchWork {
		return false
	}
	return p.MatchString(value)
}
