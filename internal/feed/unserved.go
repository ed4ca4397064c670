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
	// endsKey is the field of the node's metadata that says when the proxy's own identity ends, in seconds since 1970;
	// without the field it has none.
	endsKey = "identityEnds"
)

// ownState is what a proxy reports beside the version that it runs.
type ownState struct {
	unserved []Unserved
	ends     time.Time // in whole seconds; zero if it has no identity
}

func (s ownState) equal(o ownState) bool {
	return s.ends.Equal(o.ends) && slices.Equal(s.unserved, o.unserved)
}

// node describes the proxy.
func (r *receiver) node(now ownState) *core.Node {
	unserved := now.unserved
	fields := map[string]*structpb.Value{runningKey: structpb.NewStringValue(r.client.Status().Version)}
	if !now.ends.IsZero() {
		fields[endsKey] = structpb.NewNumberValue(float64(now.ends.Unix()))
	}
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

// state is what the client says now.
func (r *receiver) state() (out ownState) {
	if r.client.Unserved != nil {
		out.unserved = r.client.Unserved()
	}
	if r.client.Ends != nil {
		if ends := r.client.Ends(); !ends.IsZero() {
			out.ends = time.Unix(ends.Unix(), 0)
		}
	}
	return out
}

// stateOf reads what a proxy says in its node.
func stateOf(n *core.Node) ownState {
	out := ownState{unserved: unservedOf(n)}
	const latest = 1 << 38 // after the year 9999, of which no text could be made
	if at := n.GetMetadata().GetFields()[endsKey].GetNumberValue(); at > 0 && at < latest {
		out.ends = time.Unix(int64(at), 0)
	}
	return out
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

// reportState takes what a proxy says beside the version that it runs.
func (s *Server) reportState(session *session, now ownState) {
	unserved := now.unserved
	s.mu.Lock()
	r := session.feed.proxies[session.proxy]
	changed := r != nil && r.session == session && !now.equal(ownState{r.Unserved, r.Ends})
	if changed {
		if !slices.Equal(r.Unserved, unserved) {
			r.Unserved, r.Since = unserved, time.Now()
		} else {
			unserved = nil // it was told
		}
		r.Ends = now.ends
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

// Tell reports that the result of Unserved or Ends has changed. It may be called from any goroutine.
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
