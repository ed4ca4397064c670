package access

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/api/convert"
)

// Annotations keep what a version of TrafficTarget has no field for. A conversion may change nothing else in the metadata.
const (
	// PortAnnotation holds destination.port in v1alpha3 and v1alpha4, as JSON: 8080, or "8080" if it was written as text.
	// It counts in these versions, whoever wrote it: without it the target would be for all ports.
	PortAnnotation = Group + "/port"
	// PortTextAnnotation says in v1alpha2 that the port was written as text in v1alpha1, so that it is text there again.
	PortTextAnnotation = Group + "/port-as-text"
)

// bindingPrefix begins the name of an IdentityBinding in versions without that kind. No ServiceAccount can have such a name,
// so a reader of these versions that does not look at the kind finds none.
const bindingPrefix = KindIdentityBinding + ":"

var trafficTarget = convert.Kind{
	Group: Group, Name: "TrafficTarget", Plural: "traffictargets", Hub: "v1alpha4",
	Versions: map[string]convert.Version{
		"v1alpha3": {Up: namesUp, Down: namesDown},
		"v1alpha2": {
			Up: func(u map[string]any) error {
				if err := portUp(u, false); err != nil {
					return err
				}
				return namesUp(u)
			},
			Down: func(u map[string]any) { namesDown(u); portDown(u, false) },
		},
		"v1alpha1": {
			Up: func(u map[string]any) error {
				if err := intoSpec(u); err != nil {
					return err
				}
				if err := portUp(u, true); err != nil {
					return asV1alpha1(err)
				}
				return asV1alpha1(namesUp(u))
			},
			Down: func(u map[string]any) { namesDown(u); portDown(u, true); outOfSpec(u) },
		},
	},
}

func asV1alpha1(err error) error {
	if e, ok := err.(*field.Error); ok {
		return asWritten("v1alpha1", field.ErrorList{e})[0]
	}
	return err
}

// fieldsOf are the fields of a spec, and what v1alpha1 calls them.
var fieldsOf = [][2]string{{"destination", "destination"}, {"rules", "specs"}, {"sources", "sources"}}

// intoSpec moves fields to where the versions after v1alpha1 have them. It refuses unknown ones, which no later version
// would refuse any more.
func intoSpec(u map[string]any) error {
	d := &decoder{}
	d.root(u, "destination", "specs", "sources")
	if len(d.errs) > 0 {
		return d.errs[0]
	}
	spec := map[string]any{}
	for _, f := range fieldsOf {
		if v, ok := u[f[1]]; ok {
			spec[f[0]] = v
			delete(u, f[1])
		}
	}
	u["spec"] = spec
	return nil
}

// outOfSpec is the inverse of intoSpec.
func outOfSpec(u map[string]any) {
	spec, _ := u["spec"].(map[string]any)
	delete(u, "spec")
	for _, f := range fieldsOf {
		if v, ok := spec[f[0]]; ok {
			u[f[1]] = v
		}
	}
}

// identities calls each with the destination and the sources.
func identities(u map[string]any, each func(i map[string]any, at *field.Path) error) error {
	spec, _ := u["spec"].(map[string]any)
	at := field.NewPath("spec")
	if i, ok := spec["destination"].(map[string]any); ok {
		if err := each(i, at.Child("destination")); err != nil {
			return err
		}
	}
	sources, _ := spec["sources"].([]any)
	for n, v := range sources {
		if i, ok := v.(map[string]any); ok {
			if err := each(i, at.Child("sources").Index(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// namesDown marks the names of IdentityBindings.
func namesDown(u map[string]any) {
	_ = identities(u, func(i map[string]any, _ *field.Path) error {
		if name, ok := i["name"].(string); ok && i["kind"] == KindIdentityBinding {
			i["name"] = bindingPrefix + name
		}
		return nil
	})
}

// namesUp is the inverse of namesDown.
func namesUp(u map[string]any) error {
	return identities(u, func(i map[string]any, at *field.Path) error {
		name, _ := i["name"].(string)
		rest, marked := strings.CutPrefix(name, bindingPrefix)
		if i["kind"] != KindIdentityBinding {
			return nil // its name cannot be a marked one
		}
		if !marked {
			return field.Invalid(at.Child("name"), short(name), "IdentityBindings are for v1alpha4; in older versions the name begins with "+bindingPrefix)
		}
		i["name"] = rest
		return nil
	})
}

// port is a port as it was written.
type port struct {
	number int32 // 0 is none
	text   bool
}

func (p port) value() any {
	if p.text {
		return strconv.Itoa(int(p.number))
	}
	return int64(p.number)
}

// readPort reads a number, or text if that is one.
func readPort(v any) (p port, ok bool) {
	switch v := v.(type) {
	case int64:
		p.number = int32(min(max(v, 0), 1<<16))
	case string:
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != v { // no "08080", which would not come back
			return port{}, false
		}
		p = port{int32(n), true}
	}
	return p, p.number >= 1 && p.number <= 65535
}

// keptPort is the port of the annotation; none if there is no annotation.
func keptPort(u map[string]any) (port, *field.Error) {
	meta, _ := u["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	v, there := notes[PortAnnotation]
	if !there {
		return port{}, nil
	}
	var value any
	text, isText := v.(string)
	if isText && kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value) == nil {
		if p, ok := readPort(value); ok && text == jsonOf(p.value()) {
			return p, nil
		}
	}
	return port{}, field.Invalid(field.NewPath("metadata", "annotations").Key(PortAnnotation), short(v),
		"must be the one port of the destination that is allowed, from 1 to 65535, or be removed to allow all ports")
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // no port
	}
	return string(text)
}

// portUp moves the port into the annotation. A port that is written beats an annotation that somebody else left; a valid
// annotation without a port counts, as in the versions without the field. text is that the version may write it as text.
func portUp(u map[string]any, text bool) error {
	_, asText := convert.Take(u, PortTextAnnotation)
	spec, _ := u["spec"].(map[string]any)
	destination, _ := spec["destination"].(map[string]any)
	at := field.NewPath("spec", "destination", "port")
	written, there := destination["port"]
	_, keptErr := keptPort(u)
	if !there {
		if keptErr != nil {
			return keptErr
		}
		return nil
	}
	if written == int64(0) && keptErr != nil { // see portDown
		delete(destination, "port")
		return nil
	}
	p, ok := readPort(written)
	if !ok {
		return field.Invalid(at, short(written), "must be a port from 1 to 65535; without it all ports are allowed")
	}
	if p.text && !text {
		return field.Invalid(at, short(written), "must be a number; only v1alpha1 has ports as text")
	}
	p.text = p.text || asText
	delete(destination, "port")
	convert.Take(u, PortAnnotation)
	convert.Keep(u, PortAnnotation, jsonOf(p.value()))
	if now, err := keptPort(u); err != nil || now != p {
		return field.Forbidden(at, fmt.Sprintf("the annotations of this object leave no space for the port: shorten them, or write a TCPRoute with port %d as a rule in v1alpha4", p.number))
	}
	return nil
}

// portDown is the inverse of portUp. An annotation that is no port stays, and the port is 0: a reader of the version then
// allows no port instead of all.
func portDown(u map[string]any, text bool) {
	convert.Take(u, PortTextAnnotation)
	p, err := keptPort(u)
	spec, _ := u["spec"].(map[string]any)
	destination, _ := spec["destination"].(map[string]any)
	switch {
	case destination == nil || err == nil && p.number == 0:
		return
	case err != nil:
		destination["port"] = int64(0)
		return
	}
	convert.Take(u, PortAnnotation)
	if p.text && !text {
		p.text = false
		convert.Keep(u, PortTextAnnotation, "true")
	}
	destination["port"] = p.value()
}
