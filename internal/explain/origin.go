package explain

import (
	"bytes"
	"encoding/json"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
)

// WithOrigins returns the JSON form of v. Each reference to an object that origin knows gets an "origin", as findings
// have: file and line. It stands beside kind, namespace, name and field.
func WithOrigins(v any, origin func(model.Ref) finding.Origin) (json.Marshaler, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	t, err := readTree(d)
	if err != nil {
		return nil, err
	}
	t.originate(origin)
	return t, nil
}

// jsonTree is a JSON value whose objects keep the order of their members.
type jsonTree struct {
	scalar  any // a number, a text, a boolean or nil
	list    []*jsonTree
	isList  bool
	names   []string
	members []*jsonTree
	isMap   bool
}

func readTree(d *json.Decoder) (*jsonTree, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return &jsonTree{scalar: token}, nil
	}
	t := &jsonTree{isList: delim == '[', isMap: delim == '{'}
	for d.More() {
		if t.isMap {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			text, _ := name.(string)
			t.names = append(t.names, text)
		}
		x, err := readTree(d)
		if err != nil {
			return nil, err
		}
		if t.isMap {
			t.members = append(t.members, x)
		} else {
			t.list = append(t.list, x)
		}
	}
	_, err = d.Token()
	return t, err
}

// ref returns the reference that a JSON object is, if it has no other fields.
func (t *jsonTree) ref() (r model.Ref, ok bool) {
	for i, name := range t.names {
		text, isText := t.members[i].scalar.(string)
		if !isText {
			return r, false
		}
		switch name {
		case "kind":
			r.Kind = text
		case "namespace":
			r.Namespace = text
		case "name":
			r.Name = text
		case "field":
			r.Field = text
		default:
			return r, false
		}
	}
	return r, r.Kind != "" && r.Name != ""
}

func (t *jsonTree) originate(of func(model.Ref) finding.Origin) {
	for _, x := range t.list {
		x.originate(of)
	}
	for _, x := range t.members {
		x.originate(of)
	}
	r, ok := t.ref()
	if !ok {
		return
	}
	at := of(r)
	if at == (finding.Origin{}) {
		return
	}
	origin := &jsonTree{isMap: true, names: []string{"file"}, members: []*jsonTree{{scalar: at.File}}}
	if at.Line != 0 {
		origin.names, origin.members = append(origin.names, "line"), append(origin.members, &jsonTree{scalar: at.Line})
	}
	t.names, t.members = append(t.names, "origin"), append(t.members, origin)
}

// MarshalJSON implements json.Marshaler.
func (t *jsonTree) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := t.write(&b)
	return b.Bytes(), err
}

func (t *jsonTree) write(b *bytes.Buffer) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	begin, end, all := byte('['), byte(']'), t.list
	switch {
	case t.isMap:
		begin, end, all = '{', '}', t.members
	case !t.isList:
		return enc.Encode(t.scalar)
	}
	b.WriteByte(begin)
	for i, x := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		if t.isMap {
			if err := enc.Encode(t.names[i]); err != nil {
				return err
			}
			b.WriteByte(':')
		}
		if err := x.write(b); err != nil {
			return err
		}
	}
	b.WriteByte(end)
	return nil
}
