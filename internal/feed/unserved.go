package feed

import (
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Unserved is a listener that a proxy does not serve, though it runs the configuration: its port cannot be bound.
type Unserved struct {
	// Listener is its name in the model.
	Listener string `json:"listener"`
	// Reason is why it is not served.
	Reason string `json:"reason"`
}

const (
	// unservedKey is the field of the node's metadata that lists what a proxy does not serve; without the field it
	// serves everything. A control plane that does not know it takes the configuration for served.
	unservedKey = "unserved"
	// maxUnserved bounds the entries that are kept of that list, maxReason each of its texts, in bytes.
	maxUnserved = 64
	maxReason   = 256
)

// node describes the proxy and what it does not serve.
func (r *receiver) node(unserved []Unserved) *core.Node {
	fields := map[string]*structpb.Value{runningKey: structpb.NewStringValue(r.client.Status().Version)}
	if len(unserved) > 0 {
		list := &structpb.ListValue{}
		for _, u := range unserved[:min(len(unserved), maxUnserved)] {
			list.Values = append(list.Values, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"listener": structpb.NewStringValue(printable(u.Listener, maxError)), "reason": structpb.NewStringValue(printable(u.Reason, maxReason)),
			}}))
		}
		fields[unservedKey] = structpb.NewListValue(list)
	}
	return &core.Node{Id: string(r.client.Owner), Metadata: &structpb.Struct{Fields: fields}}
}

// unserved is what the client does not serve now.
func (r *receiver) unserved() []Unserved {
	if r.client.Unserved == nil {
		return nil
	}
	return r.client.Unserved()
}

// unservedOf reads a proxy's list of what it does not serve. The list may be too long.
func unservedOf(n *core.Node) (out []Unserved) {
	for _, v := range n.GetMetadata().GetFields()[unservedKey].GetListValue().GetValues() {
		if len(out) == maxUnserved {
			break
		}
		f := v.GetStructValue().GetFields()
		out = append(out, Unserved{
			Listener: printable(f["listener"].GetStringValue(), maxError), Reason: printable(f["reason"].GetStringValue(), maxReason),
		})
	}
	return out
}

// reportUnserved takes a proxy's list of what it does not serve.
func (s *Server) reportUnserved(session *session, unserved []Unserved) {
	s.mu.Lock()
	r := session.feed.proxies[session.proxy]
	changed := r != nil && r.session == session && !slices.Equal(r.Unserved, unserved)
	if changed {
		r.Unserved, r.Since = unserved, time.Now()
	}
	s.mu.Unlock()
	if changed {
		if len(unserved) > 0 {
			s.complain(session.owner, session.proxy, "proxy does not serve some listeners", "listeners", len(unserved),
				"first", unserved[0].Listener, "reason", unserved[0].Reason)
		}
		s.changed(session.owner)
	}
}

// Tell reports that the result of Unserved has changed. It may be called from any goroutine.
func (c *Client) Tell() {
	select {
	case c.tells() <- struct{}{}:
	default:
	}
}

// tells returns the channel that Tell sends to.
func (c *Client) tells() chan struct{} {
	c.told.Do(func() { c.tell = make(chan struct{}, 1) })
	return c.tell
}
