package resource

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// With returns a Set that has objects, given as they would be written, in the place of those of the same key or in
// addition; everything else is this Set's. Written still returns what users wrote. An object that is not valid is left
// out, and so is one of a kind that is not read: what was there stays. The findings are those about such objects.
func (s *Set) With(written ...map[string]any) (*Set, []Finding) {
	var findings []Finding
	over := make(map[Key]metav1.Object, len(written))
	of := make(map[Key]*Kind, len(written))
	var order []Key
	for _, u := range written {
		k, key, object, why := s.decodeWritten(runtime.DeepCopyJSON(u))
		if object == nil {
			findings = append(findings, why...)
			continue
		}
		if of[key] == nil {
			order = append(order, key)
		}
		over[key], of[key] = object, k
	}
	if len(order) == 0 {
		return s, findings
	}
	out := &Set{
		kinds: s.kinds, Watched: s.Watched, PassedOver: s.PassedOver, overlooked: s.overlooked, Expiries: s.Expiries, Rejected: s.Rejected, Drafts: s.Drafts, Findings: s.Findings,
		Origins: maps.Clone(s.Origins), Fields: maps.Clone(s.Fields), foreign: maps.Clone(s.foreign),
	}
	if out.foreign == nil {
		out.foreign = make(map[Key]Fields)
	}
	for k, o := range s.Objects() {
		key := k.Key(o.GetNamespace(), o.GetName())
		if by := over[key]; by != nil {
			o = by
			delete(of, key)
		}
		out.put(k, o)
	}
	for _, key := range order {
		if k := of[key]; k != nil {
			out.put(k, over[key])
		}
		// The positions are those of the user's text, which Written reads. They are not those of what is laid over it.
		if at, ok := out.Fields[key]; ok {
			delete(out.Fields, key)
			out.foreign[key] = at
		}
	}
	out.sort()
	return out, findings
}

// Instead returns a Set of a cluster with other versions of some of its objects; everything else is this Set's.
func (s *Set) Instead(objects map[Key]metav1.Object) *Set {
	out := &Set{
		kinds: s.kinds, Watched: s.Watched, Unread: s.Unread, PassedOver: s.PassedOver, overlooked: s.overlooked, Expiries: s.Expiries, Rejected: s.Rejected, Drafts: s.Drafts,
		Findings: s.Findings, Origins: s.Origins, Fields: s.Fields, foreign: s.foreign,
	}
	for k, o := range s.Objects() {
		if by := objects[k.Key(o.GetNamespace(), o.GetName())]; by != nil {
			o = by
		}
		out.put(k, o)
	}
	return out
}

// decodeWritten decodes an object as a document of a file would be. object is nil if it is not valid.
func (s *Set) decodeWritten(u map[string]any) (k *Kind, key Key, object metav1.Object, findings []Finding) {
	apiVersion, _ := u["apiVersion"].(string)
	kind, _ := u["kind"].(string)
	meta, _ := u["metadata"].(map[string]any)
	objectName, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	k = s.kinds.Find(group, kind)
	if k == nil || !slices.Contains(k.Versions, version) || objectName == "" {
		f := finding(CodeNoObject, "", "no "+kind+" of "+apiVersion+" is read")
		f.Ref.Kind, f.Ref.Namespace, f.Ref.Name = kind, namespace, objectName
		return nil, Key{}, nil, []Finding{f}
	}
	key = k.Key(namespace, objectName)
	made, why := k.Decoder.decode(k, version, u, admit)
	findings = bounded(why)
	for i := range findings {
		ref := key.Ref()
		ref.Field = findings[i].Ref.Field
		findings[i].Ref = ref
		findings[i].Origin = s.Origins[key]
	}
	object, _ = made.(metav1.Object)
	return k, key, object, findings
}
