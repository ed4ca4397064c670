package replica

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/feed"
)

// Sidecar is a pod's sidecar that is connected to a replica, in the short form of the board: there may be thousands.
type Sidecar struct {
	// Pod is its pod, "namespace/name".
	Pod string `json:"p"`
	// Since is when it said the rest, and Ends when its certificate ends, in seconds since 1970; 0 if it has none.
	Since int64 `json:"s,omitempty"`
	Ends  int64 `json:"e,omitempty"`
	// Serves is that it serves a configuration, Behind that this is an old one, for longer than it may be.
	Serves bool `json:"c,omitempty"`
	Behind bool `json:"b,omitempty"`
	// Wrong is that it could not apply the last configuration, or not all of it, or that some of it cannot be sent.
	Wrong bool `json:"w,omitempty"`
}

// Bounds of what a replica writes about sidecars.
const (
	sidecarsSize = 512 << 10 // bytes packed; a ConfigMap has a MiB at most
	maxSidecars  = 10_000    // of one replica
	sidecarsRead = 8 << 20   // bytes unpacked
)

// SidecarsOf are the sidecars of a feed, by pod.
func SidecarsOf(all []feed.Alone) []Sidecar {
	out := make([]Sidecar, 0, len(all))
	for _, a := range all {
		s := Sidecar{Pod: a.Name, Since: a.Since.Unix(), Serves: a.Version != "", Behind: a.Behind, Wrong: a.Err != "" || len(a.Unserved) > 0 || a.Unsent}
		if !a.Ends.IsZero() {
			s.Ends = a.Ends.Unix()
		}
		out = append(out, s)
	}
	return out
}

// Sidecars joins lists of sidecars. Of several words about one, the newest counts.
func Sidecars(all ...[]Sidecar) []Sidecar {
	by := map[string]Sidecar{}
	for _, list := range all {
		for _, s := range list {
			if old, ok := by[s.Pod]; !ok || s.Since > old.Since {
				by[s.Pod] = s
			}
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b Sidecar) int { return cmp.Compare(a.Pod, b.Pod) })
}

// packSidecars packs as many as fit, in their order, and returns how many do not.
func packSidecars(all []Sidecar) (data []byte, left int, err error) {
	for n := min(len(all), maxSidecars); ; n /= 2 {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		if err := errors.Join(json.NewEncoder(z).Encode(all[:n]), z.Close()); err != nil {
			return nil, 0, err
		}
		if out.Len() <= sidecarsSize || n == 0 {
			return out.Bytes(), len(all) - n, nil
		}
	}
}

// unpackSidecars reads what packSidecars wrote; nothing is no sidecars, as older releases write none.
func unpackSidecars(data []byte) (out []Sidecar, err error) {
	if len(data) == 0 {
		return nil, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(io.LimitReader(z, sidecarsRead))
	if err = d.Decode(&out); err == nil && len(out) > maxSidecars {
		err = fmt.Errorf("%d sidecars, and at most %d may be", len(out), maxSidecars)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// OtherSidecars returns the sidecars that are connected to other replicas.
func (b *Board) OtherSidecars() []Sidecar {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lists [][]Sidecar
	for _, name := range slices.Sorted(maps.Keys(b.others)) {
		lists = append(lists, b.others[name].sidecars)
	}
	return Sidecars(lists...)
}

// ReadSidecars returns the sidecars that are connected to any replica of the controller in a namespace, by pod.
func ReadSidecars(ctx context.Context, reader client.Reader, namespace string) ([]Sidecar, error) {
	var list corev1.ConfigMapList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{BoardLabel: BoardValue}); err != nil {
		return nil, err
	}
	var lists [][]Sidecar
	for _, c := range list.Items {
		said, err := unpackSidecars(c.BinaryData[sidecarsKey])
		if err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s: %w", c.Namespace, c.Name, err)
		}
		lists = append(lists, said)
	}
	return Sidecars(lists...), nil
}
