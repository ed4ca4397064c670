package rollout

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
)

// In a cluster nobody but an object itself remembers what its user wrote. So an object over which a step is laid has two
// annotations.
const (
	// OriginalAnnotation has, as JSON, what the user wrote and what was made of it: see kept. OpenKruise writes it, too,
	// without the latter.
	OriginalAnnotation = "rollouts.kruise.io/original-spec-configuration"
	// LaidAnnotation is a hash of what was made of it, by which the loss of the other annotation is seen.
	LaidAnnotation = "rollouts.kruise.io/laid-spec-hash"
)

const (
	// maxAnnotations is how many bytes the names and values of all annotations of an object may have
	// (k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB).
	maxAnnotations = 256 << 10
	// maxPlain is how long a text may be that is kept as it is; a longer one is compressed.
	maxPlain = 16 << 10
	// maxKept bounds what a compressed text becomes, which somebody else may have written. An API server takes objects of
	// 3 MiB at most, and a text has two forms of one.
	maxKept = 8 << 20
)

// form is what a provider may change of an object: its spec, and labels and annotations, of which only those are listed
// that are changed; nil means that there is none.
type form struct {
	Spec        any            `json:"spec"`
	Labels      map[string]any `json:"labels,omitempty"`
	Annotations map[string]any `json:"annotations,omitempty"`
}

// kept is the content of OriginalAnnotation: what the user wrote, and what was laid. A text that is too long is in Gzip,
// compressed, in base64.
type kept struct {
	form
	Laid *form  `json:"laid,omitempty"`
	Gzip string `json:"gzip,omitempty"`
}

// Unlaid is what an object of a cluster is without the step that is laid over it.
type Unlaid struct {
	// Object is what the user wants now: what he wrote before the step, with what he edited since. It is the caller's.
	Object map[string]any
	// Kept means that a step is laid over the object, Edited that the user edited it since.
	Kept, Edited bool
	// Told says which edits have no effect.
	Told []Told
}

// Original finds out what the user of a live object wants: the object itself if nothing is laid over it; else what was
// kept, with everything that the user has changed since then. It leaves live alone. With an error, which says what to do,
// nobody knows, and the object has to be left as it is.
//
// What the user edits of the laid object is taken over as follows. A field that the step did not change is as he wrote it.
// What the step added, such as the rule of a canary, is not his, and is left out even if he edited it. Where he changes a
// weight among those that the step divided, or adds a backend to them, the weights that he sees count from now on, and
// what the canary has belongs to the stable Service. A list without anything that the step added to it is one that he
// wrote anew, such as by applying his file again: it counts as it is.
func Original(live map[string]any) (Unlaid, error) {
	object, err := canonical(live)
	if err != nil {
		return Unlaid{}, err
	}
	text, there := takeAnnotation(object, OriginalAnnotation)
	hash, marked := takeAnnotation(object, LaidAnnotation)
	if !there {
		if marked && hash == hashOf(object) {
			return Unlaid{}, fmt.Errorf("%s has a step laid over it, but its annotation %s is gone, so nobody knows how it was before: apply your own file again, and remove the annotation %s",
				name(live), OriginalAnnotation, LaidAnnotation)
		}
		u := Unlaid{Object: object, Edited: marked}
		if marked {
			u.Told = append(u.Told, Notef("", "apply your own file again, if that is not meant", "the annotation %s of %s is gone: it counts as it is now", OriginalAnnotation, name(live)))
		}
		return u, nil
	}
	k, err := readKept(text)
	if err != nil {
		return Unlaid{}, fmt.Errorf("%s: the annotation %s cannot be read (%w), so nobody knows how it was before: apply your own file again, and remove the annotation",
			name(live), OriginalAnnotation, err)
	}
	u := Unlaid{Object: object, Kept: true}
	if k.Laid == nil { // of OpenKruise, which restores what it kept
		k.Laid = &form{Spec: object["spec"]}
		for _, each := range []struct{ kept, now map[string]any }{{k.Labels, metadata(object, "labels")}, {k.Annotations, metadata(object, "annotations")}} {
			for key := range each.now {
				if _, ok := each.kept[key]; !ok {
					continue
				}
				each.now[key] = each.kept[key]
			}
		}
	}
	m := &merger{}
	spec := m.merge("spec", some(k.Laid.Spec), some(object["spec"]), some(k.Spec))
	u.Edited = !reflect.DeepEqual(k.Laid.Spec, object["spec"])
	if object["spec"] = spec.value; !spec.there {
		delete(object, "spec")
	}
	for _, part := range []struct {
		name      string
		laid, was map[string]any
	}{{"labels", k.Laid.Labels, k.Labels}, {"annotations", k.Laid.Annotations, k.Annotations}} {
		restoreMetadata(object, part.name, part.laid, part.was)
	}
	for _, field := range m.dropped {
		u.Told = append(u.Told, Notef("", "edit what the step does not add", "%s of %s is of the step, so what you changed there has no effect", field, name(live)))
	}
	return u, nil
}

// Keep returns what an object is to be in a cluster with a step laid over it: laid, with what is needed to find the
// original again. The original is one of Original; if laid does not differ from it, there is nothing to keep. An error says
// why it cannot be kept, and then the step must not be laid.
func Keep(original, laid map[string]any) (map[string]any, error) {
	before, err := canonical(original)
	if err != nil {
		return nil, err
	}
	out, err := canonical(laid)
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(before, out) {
		return out, nil
	}
	for _, u := range []map[string]any{before, out} {
		takeAnnotation(u, OriginalAnnotation)
		takeAnnotation(u, LaidAnnotation)
	}
	k := kept{form: form{Spec: before["spec"]}, Laid: &form{Spec: out["spec"]}}
	k.Labels, k.Laid.Labels = changed(metadata(before, "labels"), metadata(out, "labels"))
	k.Annotations, k.Laid.Annotations = changed(metadata(before, "annotations"), metadata(out, "annotations"))
	text, err := k.write()
	if err != nil {
		return nil, err
	}
	hash := hashOf(out)
	annotations := metadata(out, "annotations")
	if annotations == nil {
		meta, ok := out["metadata"].(map[string]any)
		if !ok {
			meta = map[string]any{}
			out["metadata"] = meta
		}
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	left := maxAnnotations - len(OriginalAnnotation) - len(LaidAnnotation) - len(hash)
	for key, v := range annotations {
		value, _ := v.(string)
		left -= len(key) + len(value)
	}
	if len(text) > left {
		return nil, fmt.Errorf("%s is too large: what it was before the step takes %d bytes of its annotations, and %d of %d are free: divide it, or remove annotations",
			name(original), len(text), max(left, 0), maxAnnotations)
	}
	annotations[OriginalAnnotation], annotations[LaidAnnotation] = text, hash
	return out, nil
}

// Over lays a routing over an object of a cluster, over which another step may be laid: over what its user wants of it, which
// is kept. The request's Object is not read. If the original is not known, or cannot be kept, Told says so, and the object
// stays as it is. Without a provider ok is false.
func (all Providers) Over(live map[string]any, r Request, routing *Routing) (laid Laid, ok bool) {
	if _, known := all.For(r.Target); !known || live == nil {
		return Laid{}, false
	}
	stays := func(err error) (Laid, bool) {
		message, fix := err.Error(), "see the message"
		if i := strings.LastIndex(message, ": "); i > 0 {
			message, fix = message[:i], message[i+2:]
		}
		return Laid{Object: live, Told: []Told{Objectf(fix, "%s", message)}}, true
	}
	u, err := Original(live)
	if err != nil {
		return stays(err)
	}
	if !u.Kept && u.Edited && r.Canary != r.Stable && mentions(u.Object["spec"], r.Canary) {
		return stays(fmt.Errorf("%s leads to %s, and its annotation %s is gone, so nobody knows how it was before: apply your own file again", name(live), r.Canary, OriginalAnnotation))
	}
	r.Object = u.Object
	laid, ok = all.Lay(r, routing)
	laid.Told = append(u.Told, laid.Told...)
	object, err := Keep(u.Object, laid.Object)
	if err != nil {
		return stays(err)
	}
	laid.Object = object
	return laid, ok
}

// name is that of an object, for messages.
func name(u map[string]any) string {
	meta, _ := u["metadata"].(map[string]any)
	return fmt.Sprintf("%v %v", u["kind"], meta["name"])
}

// canonical is a copy of an object as JSON would have it: a number is an int64 wherever it is a whole one.
func canonical(u map[string]any) (out map[string]any, err error) {
	text, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	return out, kjson.UnmarshalCaseSensitivePreserveInts(text, &out)
}

func hashOf(u map[string]any) string {
	text, _ := json.Marshal(u["spec"]) // it was JSON before
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// metadata are the labels or annotations of an object, or nil.
func metadata(u map[string]any, which string) map[string]any {
	meta, _ := u["metadata"].(map[string]any)
	all, _ := meta[which].(map[string]any)
	return all
}

func takeAnnotation(u map[string]any, key string) (text string, there bool) {
	all := metadata(u, "annotations")
	v, there := all[key]
	if !there {
		return "", false
	}
	if delete(all, key); len(all) == 0 {
		delete(u["metadata"].(map[string]any), "annotations")
	}
	text, _ = v.(string)
	return text, true
}

// changed are the entries in which two maps differ, as each has them.
func changed(before, after map[string]any) (a, b map[string]any) {
	a, b = map[string]any{}, map[string]any{}
	for _, m := range []map[string]any{before, after} {
		for key := range m {
			if v, w := before[key], after[key]; !reflect.DeepEqual(v, w) {
				a[key], b[key] = v, w
			}
		}
	}
	return a, b
}

// restoreMetadata gives labels or annotations that are as they were laid the values that they had.
func restoreMetadata(u map[string]any, which string, laid, was map[string]any) {
	for key, v := range was {
		now := metadata(u, which)
		if now[key] != laid[key] {
			continue // edited
		}
		if v != nil {
			if now == nil {
				now = map[string]any{}
				meta, _ := u["metadata"].(map[string]any)
				if meta == nil {
					meta = map[string]any{}
					u["metadata"] = meta
				}
				meta[which] = now
			}
			now[key] = v
			continue
		}
		if delete(now, key); now != nil && len(now) == 0 {
			delete(u["metadata"].(map[string]any), which)
		}
	}
}

// write is the text of an annotation.
func (k kept) write() (string, error) {
	text, err := json.Marshal(k)
	if err != nil || len(text) <= maxPlain {
		return string(text), err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := z.Write(text); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	text, err = json.Marshal(map[string]string{"gzip": base64.StdEncoding.EncodeToString(b.Bytes())})
	return string(text), err
}

func readKept(text string) (k kept, err error) {
	if err := unmarshal([]byte(text), &k); err != nil {
		return kept{}, err
	}
	if k.Gzip != "" {
		z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(k.Gzip)))
		if err != nil {
			return kept{}, err
		}
		plain, err := io.ReadAll(io.LimitReader(z, maxKept+1))
		if err != nil {
			return kept{}, err
		}
		if len(plain) > maxKept {
			return kept{}, fmt.Errorf("it is longer than %d bytes", maxKept)
		}
		k = kept{}
		if err := unmarshal(plain, &k); err != nil {
			return kept{}, err
		}
	}
	for _, f := range []*form{&k.form, k.Laid} {
		if f == nil {
			continue
		}
		if _, ok := f.Spec.(map[string]any); !ok {
			return kept{}, errors.New("it has no spec")
		}
		for _, m := range []map[string]any{f.Labels, f.Annotations} {
			for key, v := range m {
				if _, ok := v.(string); v != nil && !ok {
					return kept{}, fmt.Errorf("the value of %q is no text", key)
				}
			}
		}
	}
	return k, nil
}

func unmarshal(text []byte, k *kept) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, k); err != nil {
		return errors.New("it is not the JSON that Weir writes")
	}
	return nil
}

// mentions reports whether a text of a value is a Service's name, or a host name of it.
func mentions(v any, service string) bool {
	switch v := v.(type) {
	case string:
		return v == service || strings.HasPrefix(v, service+".")
	case []any:
		for _, each := range v {
			if mentions(each, service) {
				return true
			}
		}
	case map[string]any:
		for _, each := range v {
			if mentions(each, service) {
				return true
			}
		}
	}
	return false
}
