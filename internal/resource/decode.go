package resource

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// document is the result of decoding the text of one document. It depends only on the text, so it is kept from one
// reading to the next; lines count from 0 at the start of the text.
type document struct {
	kinds    Kinds
	entries  []entry
	findings []Finding // on no single object
	// broken means that the text may hold objects that could not be recognised.
	broken bool
}

// entry is one object of a document.
type entry struct {
	key  Key
	line int
	at   locator // of its fields
	// object is the typed object, nil if it was rejected; then draft is the object as written.
	object   any
	draft    map[string]any
	findings []Finding
	// certified is nil if the object holds no certificates.
	certified *certified
	// passedOver is the apiVersion and kind, if the kind is not one that is read.
	passedOver *passedOver
}

type passedOver struct{ apiVersion, kind string }

func decodeDocument(kinds Kinds, p part) *document {
	d := &document{kinds: kinds}
	value, findings, ok := p.parse()
	if !ok && !p.json {
		if read, stars, readOK := p.parseStars(); readOK {
			value, findings, ok, p.text = read.value, stars, true, read.text
		}
	}
	// The kept text must not keep the rest of the file in memory.
	l := &locator{source: &source{text: bytes.Clone(p.text), json: p.json}}
	for i := range findings {
		if findings[i].Ref.Field != "" {
			findings[i].Origin.Line = l.line(findings[i].Ref.Field)
		}
	}
	d.findings = findings
	switch {
	case !ok:
		d.broken = true
	case value == nil: // only "null" or "---"
	default:
		d.add(value, l)
	}
	if len(d.entries) == 1 && d.entries[0].passedOver == nil {
		for i := range findings { // findings about the text; others name their object, or cannot
			field := d.findings[i].Ref.Field
			d.findings[i].Ref = d.entries[0].key.Ref()
			d.findings[i].Ref.Field = field
		}
	}
	return d
}

// add decodes a value that should be an object or a list of objects.
func (d *document) add(value any, l *locator) {
	u, ok := value.(map[string]any)
	if !ok {
		d.reject(l, "", fmt.Sprintf("the document is %s, not an object", describe(value)), "")
		return
	}
	apiVersion, _ := u["apiVersion"].(string)
	kindName, _ := u["kind"].(string)
	switch {
	case kindName == "" && apiVersion == "":
		d.reject(l, "", "the document has no apiVersion and no kind", "")
		return
	case kindName == "":
		d.reject(l, "kind", "kind is missing or not text", "")
		return
	}
	whole, completed := d.complete(apiVersion, kindName, u)
	written, writtenKind := apiVersion, kindName
	if completed != nil {
		apiVersion, kindName = whole, completed.Name
	}
	if apiVersion == "" {
		const message = "apiVersion is missing or not text"
		named := d.kinds.named(kindName)
		if len(named) == 0 {
			d.reject(l, "apiVersion", message, "")
			return
		}
		f := finding(CodeNoObject, "apiVersion", message)
		var versions []string
		for _, k := range named {
			versions = append(versions, k.APIVersion(k.Versions[0]))
		}
		f.Fix = "write apiVersion: " + strings.Join(versions, " or ")
		d.leaveOut(l, named[0], u, f)
		return
	}
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	if items, ok := u["items"].([]any); ok && strings.HasSuffix(kindName, "List") {
		d.addList(items, apiVersion, strings.TrimSuffix(kindName, "List"), l)
		return
	}
	k := d.kinds.Find(group, kindName)
	if like := d.kinds.misspelt(group, version, kindName); k == nil && like != nil {
		d.misspell(l, u, group, version, kindName, like)
		return
	}
	if k == nil {
		e := entry{line: l.line(""), at: *l, passedOver: &passedOver{apiVersion, kindName}}
		e.key, _ = foreignKey(apiVersion, kindName, u)
		d.entries = append(d.entries, e)
		return
	}
	if completed != nil {
		note := finding(CodeNoGroup, "apiVersion",
			fmt.Sprintf("%q is no full apiVersion: the object is read as %s of %s, but an API server rejects it", written, k.Name, apiVersion))
		note.Fix = "write apiVersion: " + k.APIVersion(k.instead(version))
		if writtenKind != k.Name {
			note.Fix += " and kind: " + k.Name
		}
		d.addObject(k, version, u, l, note)
		return
	}
	if served := k.instead(version); served != version {
		note := finding(CodeUnservedVersion, "apiVersion", fmt.Sprintf("no API server serves %s of %s: it is read from files alone", apiVersion, k.Name))
		note.Fix = "write apiVersion: " + k.APIVersion(served) + ", which has the same fields"
		d.addObject(k, version, u, l, note)
		return
	}
	d.addObject(k, version, u, l)
}

// complete returns the kind of an object that is written without the apiVersion it should have, and that apiVersion; nil for others.
func (d *document) complete(apiVersion, kindName string, u map[string]any) (whole string, completed *Kind) {
	for _, k := range d.kinds {
		if k.Complete == nil {
			continue
		}
		if whole, ok := k.Complete(apiVersion, kindName, u); ok {
			return whole, k
		}
	}
	return "", nil
}

// addList unpacks a List. Items of a typed list, such as ServiceList, may leave out what the list says.
func (d *document) addList(items []any, apiVersion, kindName string, l *locator) {
	for i, item := range items {
		at := *l
		at.prefix = strings.TrimPrefix(fmt.Sprintf("%s.items[%d]", l.prefix, i), ".")
		if u, ok := item.(map[string]any); ok && kindName != "" {
			if _, ok := u["kind"]; !ok {
				u["kind"] = kindName
			}
			if _, ok := u["apiVersion"]; !ok {
				u["apiVersion"] = apiVersion
			}
		}
		d.add(item, &at)
	}
}

func (d *document) addObject(k *Kind, version string, u map[string]any, l *locator, notes ...Finding) {
	meta, _ := u["metadata"].(map[string]any)
	objectName, _ := meta["name"].(string)
	namespace, hasNamespace := meta["namespace"].(string)
	if objectName == "" {
		d.reject(l, "metadata.name", k.Name+" has no metadata.name", "")
		return
	}
	switch {
	case k.Cluster:
		namespace = ""
		delete(meta, "namespace") // an API server ignores it, too
	case namespace == "" && (hasNamespace || meta["namespace"] == nil):
		namespace = "default"
		meta["namespace"] = namespace
	}
	e := entry{key: k.Key(namespace, objectName), line: l.line(""), at: *l}
	if !slices.Contains(k.Versions, version) {
		e.findings = []Finding{finding(CodeVersion, "apiVersion", fmt.Sprintf("version %q of %s is not one that Weir reads", k.APIVersion(version), k.Name))}
		e.findings[0].Fix = "write " + k.versionList()
	} else {
		e.object, e.findings = k.Decoder.decode(k, version, u, admit)
	}
	certificate, broken := certify(e.object, u)
	if e.certified = certificate; certificate != nil {
		certificate.line = l.line(certificate.field) - e.line
	}
	if broken != nil {
		e.findings = append(e.findings, *broken)
	}
	e.findings = bounded(append(notes, e.findings...))
	for i := range e.findings {
		f := &e.findings[i]
		f.Ref.Kind, f.Ref.Namespace, f.Ref.Name = k.Name, namespace, objectName
		f.Origin.Line = l.line(f.Ref.Field)
	}
	if e.object == nil {
		e.draft = u
	}
	d.entries = append(d.entries, e)
}

// misspell reports a kind or group that is almost one that is read. It is left out, as it would be in a cluster.
func (d *document) misspell(l *locator, u map[string]any, group, version, kindName string, like *Kind) {
	at, written, meant := "kind", kindName, like.Name
	if kindName == like.Name {
		at, written, meant = "apiVersion", strings.TrimPrefix(group+"/"+version, "/"), like.APIVersion(like.Versions[0])
		if slices.Contains(like.Versions, version) {
			meant = like.APIVersion(version)
		}
	}
	f := finding(CodeMisspelt, at, fmt.Sprintf("%q is not known, so the document is left out", written))
	if at == "apiVersion" {
		f.Message = fmt.Sprintf("there is no %s of %q, so the document is left out", kindName, written)
	}
	f.Fix = fmt.Sprintf("did you mean %q?", meant)
	d.leaveOut(l, like, u, f)
}

// leaveOut reports a document that was most likely meant to be an object of a kind: who refers to that learns what to mend.
func (d *document) leaveOut(l *locator, k *Kind, u map[string]any, f Finding) {
	f.Origin.Line = l.line(f.Ref.Field)
	meta, _ := u["metadata"].(map[string]any)
	objectName, _ := meta["name"].(string)
	if objectName == "" {
		d.findings = append(d.findings, f)
		d.broken = true
		return
	}
	namespace, _ := meta["namespace"].(string)
	if k.Cluster {
		namespace = ""
	} else if namespace == "" {
		namespace = "default"
	}
	f.Ref.Kind, f.Ref.Namespace, f.Ref.Name = k.Name, namespace, objectName
	d.entries = append(d.entries, entry{key: k.Key(namespace, objectName), line: l.line(""), at: *l, findings: []Finding{f}})
}

// maxFindings bounds the findings about one document or object: finding the lines of each takes time, and more are not
// read.
const maxFindings = 100

// bounded keeps the first findings; the last of them says that there are more.
func bounded(findings []Finding) []Finding {
	if len(findings) <= maxFindings {
		return findings
	}
	findings = findings[:maxFindings]
	findings[maxFindings-1].Message += " (there are more findings, of this kind and others; correct these first)"
	return findings
}

// reject reports something that is not an object. An empty fix means the usual one.
func (d *document) reject(l *locator, field, message, fix string) {
	f := finding(CodeNoObject, field, message)
	if fix != "" {
		f.Fix = fix
	}
	f.Origin.Line = l.line(field)
	d.findings = append(d.findings, f)
	d.broken = true
}

func describe(value any) string {
	switch value.(type) {
	case []any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return "a boolean"
	}
	return "a number"
}
