package feed

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"sort"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirmesh/weir/internal/model"
)

// maxPart bounds the encoding of one part, in bytes, and with it the size of one message (maxMessage).
const maxPart = 12 << 20

// part is one part as it was published. It is immutable, except for content, which Publish replaces by an equal one so
// that no older configuration is kept alive. Snapshots with the same part share it.
type part struct {
	name    string
	version string
	content model.Config
	// resource is the part on the wire; all responses that hold it share it. It is nil for a part that is never sent, since the
	// proxy keeps what it has of it (asHad).
	resource *discovery.Resource
}

func (p *part) size() int { return len(p.name) + len(p.version) + len(p.resource.Resource.Value) + 64 }

// snapshot is one published configuration of one owner, immutable.
type snapshot struct {
	version string
	parts   []*part // by name
	partial bool    // it lacks what proxies ask for (Common.Partial)
}

// Version is a hash of a configuration's content: equal for equal configurations, in this process and in others. The
// versions that Server.Running reports are of this kind. It is "" for nil.
//
// It encodes the whole configuration; Server.Version returns the version of what was published last without this work.
func Version(c *model.Config) string {
	if c == nil {
		return ""
	}
	s, err := newSnapshot(c, nil)
	if err != nil {
		return "" // only if it cannot be published
	}
	return s.version
}

// newSnapshot encodes a configuration. It takes unchanged parts from an earlier one of the same owner, if there is
// one; then nobody else may use that one's contents at the same time.
func newSnapshot(c *model.Config, earlier *snapshot) (*snapshot, error) {
	s, twice, err := buildSnapshot(c, earlier)
	if twice == "" || err != nil {
		return s, err
	}
	sorted := *c // entries with one name may be apart
	sorted.Sort()
	s, twice, err = buildSnapshot(&sorted, earlier)
	if twice != "" && err == nil {
		return nil, fmt.Errorf("part %q: two different parts have this name", twice)
	}
	return s, err
}

// buildSnapshot also returns a name that several parts have, if there is one: then the snapshot must not be used.
func buildSnapshot(c *model.Config, earlier *snapshot) (s *snapshot, twice string, err error) {
	b := snapshotBuilder{earlier: earlier}
	n := 0
	for _, l := range lists {
		n += l.Len(c)
	}
	b.parts = make([]*part, 0, n)
	for l, content := range parts(c) {
		if err := b.add(l, content); err != nil {
			return nil, "", err
		}
	}
	slices.SortFunc(b.parts, func(a, b *part) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(b.parts); i++ {
		if b.parts[i-1].name == b.parts[i].name {
			return nil, b.parts[i].name, nil
		}
	}
	version := versionOf(b.parts, func(p *part) (string, string) { return p.name, p.version })
	return &snapshot{version: version, parts: b.parts}, "", nil
}

// versionOf hashes names and versions, which come ordered by name.
func versionOf[T any](all []T, of func(T) (name, version string)) string {
	h := sha256.New()
	var line []byte
	for _, x := range all {
		name, version := of(x)
		line = append(append(line[:0], name...), '\n')
		line = append(append(line, version...), '\n')
		h.Write(line)
	}
	return shortHash([sha256.Size]byte(h.Sum(nil)))
}

type snapshotBuilder struct {
	earlier *snapshot
	parts   []*part
	next    int // index in earlier.parts of the part that is likely to come next
	name    []byte
	data    bytes.Buffer
}

// add takes the part from the earlier snapshot if its content is equal or at least its encoding is.
func (b *snapshotBuilder) add(l model.List, content *model.Config) error {
	b.name = appendName(b.name[:0], l, content)
	old := b.find()
	if old != nil && old.resource != nil && l.Equal(&old.content, content) {
		old.content = *content
		b.parts = append(b.parts, old)
		return nil
	}
	b.data.Reset()
	if err := encodePart(&b.data, content); err != nil {
		return fmt.Errorf("part %q: %w", b.name, err)
	}
	if b.data.Len() > maxPart {
		return fmt.Errorf("part %q: takes %d bytes, more than the %d that can be sent", b.name, b.data.Len(), maxPart)
	}
	if old != nil && old.resource != nil && bytes.Equal(b.data.Bytes(), old.resource.Resource.Value) {
		old.content = *content
		b.parts = append(b.parts, old)
		return nil
	}
	data := bytes.Clone(b.data.Bytes())
	p := &part{name: string(b.name), version: hashOf(data), content: *content}
	p.resource = &discovery.Resource{Name: p.name, Version: p.version, Resource: &anypb.Any{TypeUrl: typeURL, Value: data}}
	b.parts = append(b.parts, p)
	return nil
}

// find looks b.name up in the earlier snapshot.
func (b *snapshotBuilder) find() *part {
	if b.earlier == nil {
		return nil
	}
	old := b.earlier.parts
	if b.next >= len(old) || old[b.next].name != string(b.name) {
		b.next = sort.Search(len(old), func(i int) bool { return old[i].name >= string(b.name) })
	}
	if b.next < len(old) && old[b.next].name == string(b.name) {
		b.next++
		return old[b.next-1]
	}
	return nil
}

// step is what leads a proxy from one configuration to another.
type step struct {
	changed []*part
	removed []string
}

// since is the step from another snapshot.
func (s *snapshot) since(old *snapshot) step {
	var out step
	i, j := 0, 0
	for i < len(old.parts) || j < len(s.parts) {
		switch {
		case j == len(s.parts) || i < len(old.parts) && old.parts[i].name < s.parts[j].name:
			out.removed = append(out.removed, old.parts[i].name)
			i++
		case i == len(old.parts) || s.parts[j].name < old.parts[i].name:
			out.changed = append(out.changed, s.parts[j])
			j++
		default:
			if a, b := old.parts[i], s.parts[j]; a != b && a.version != b.version {
				out.changed = append(out.changed, b)
			}
			i, j = i+1, j+1
		}
	}
	return out
}

// sinceVersions is the step from a set of parts, given by their names and versions.
func (s *snapshot) sinceVersions(have map[string]string) step {
	var out step
	known := 0
	for _, p := range s.parts {
		version, ok := have[p.name]
		if ok {
			known++
		}
		if !ok || version != p.version {
			out.changed = append(out.changed, p)
		}
	}
	if known == len(have) {
		return out
	}
	for name := range have {
		if i := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].name >= name }); i == len(s.parts) || s.parts[i].name != name {
			out.removed = append(out.removed, name)
		}
	}
	slices.Sort(out.removed)
	return out
}
