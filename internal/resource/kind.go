package resource

import (
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/convert"
	"github.com/weirmesh/weir/internal/model"
)

// Kind describes a kind of objects that Weir reads, and is the only place that does. Sources, the status writer,
// permissions, commands and docs are made from it. It does not change once it is in use, and is shared.
type Kind struct {
	Group, Name string
	// Plural is the kind's resource name in paths, "httproutes".
	Plural string
	// Cluster means that the objects have no namespace.
	Cluster bool
	// Versions are the versions that Weir reads. The first is the version of the Go type, and the preferred one.
	Versions []string
	// Instead has the versions among them that no API server serves, and for each one that is served and has the same form.
	Instead map[string]string
	// Definition is the custom resource definition; the zero value is for kinds of Kubernetes itself.
	Definition Definition
	// Decoder makes the typed objects. Objects is their place in a Set; nil means that they have none.
	Decoder Decoder
	Objects Store
	// Complete, if set, recognises objects written without their proper apiVersion, and returns that. It may put into u what
	// such objects have elsewhere.
	Complete func(apiVersion, kind string, u map[string]any) (full string, ok bool)
	// Elsewhere says of fields that the kind does not have where Complete puts them if nothing is there: "name" to
	// "metadata.name".
	Elsewhere map[string]string

	// Strict means that an unknown field, or null, makes an object invalid, as without it the object would allow more than
	// its author wrote. The Decoder must hold that of objects of a cluster, whose definition should keep such fields.
	Strict bool

	// FilesOnly means that Weir reads the kind from files only; a cluster has something else instead.
	FilesOnly bool
	// Needs are kinds that Weir reads from a cluster only while there is an object of this kind, or of another that needs
	// them.
	Needs Kinds
	// OnReference means that Weir reads an object from a cluster only if another object refers to it. It reads only the
	// names of the others.
	OnReference bool
	// References, if set, returns the objects of OnReference kinds that an object refers to.
	References func(object metav1.Object) []Key
	// Essential means that a cluster cannot be judged before the objects of this kind are known.
	Essential bool
	// Label, if set, is a label that objects of a cluster must have to be read.
	Label string
	// Status describes the status that Weir writes on the objects; nil means that it writes none.
	Status *StatusForm
	// Verbs are the permissions for the objects in a cluster besides reading them and writing their status.
	Verbs []string
	// Conversion converts its versions for an API server; nil if they differ only in name.
	Conversion *convert.Kind

	// API is the specification of the kind, "SMI"; empty for Kubernetes. Domain is common to all the API's groups, if
	// it has several.
	API, Domain string
	// Bundled means that Weir's own chart contains the definition.
	Bundled bool
	// Without is what does not work in a cluster without the kind, as the end of a sentence. Missing is how severe that
	// is.
	Without string
	Missing Severity
	// Common means that other APIs have kinds of the same name, which Weir ignores.
	Common bool
	// Unlike are names of kinds of other APIs that resemble this kind's name and do not mean it.
	Unlike []string
	// Effects describes the effect of a missing field, by the end of its path: "without FIELD ...". See FieldEffects.
	Effects map[string]string

	// Table is the first header of the table in "weir status" that lists the objects, if they have a status. Kinds with
	// the same columns may share a table.
	Table string
	// Columns are the other columns.
	Columns []Column
	// About describes the supported part of the kind, in Markdown, for the docs' table of kinds.
	About string

	// once compiles the schemas at their first use.
	once    sync.Once
	schemas map[string]*schema // by version
}

// Definition is a custom resource definition, as YAML in a file. The zero value means that there is none.
type Definition struct {
	Files fs.FS
	Name  string
}

// StatusForm describes the parts of a status that Weir writes, and their kind.
type StatusForm struct {
	// Types are the condition types that belong to Weir on Weir's objects. Weir does not touch other types.
	Types []string
	// Conditions are the conditions of the object itself. Generation, Features, Addresses and Listeners are as in
	// Status.
	Conditions, Generation, Features, Addresses, Listeners bool
	// Parents and Ancestors have an entry each for this controller's.
	Parents, Ancestors bool
	// Urgency orders simultaneous writes: higher comes first. Objects with an Urgency above zero are shared with other
	// controllers as wholes, so Weir reads the object again before it writes the status.
	Urgency int
	// Pending means that the conditions Accepted and Programmed become Unknown when an object is no longer Weir's.
	Pending bool
}

// Column is a column in a table of "weir status".
type Column struct {
	Header string
	// Cell returns an object's values in the column. It is nil for columns that the command itself knows, such as
	// ACCEPTED.
	Cell func(object metav1.Object) []string
}

// Columns returns columns that "weir status" knows, by their headers.
func Columns(headers ...string) []Column {
	out := make([]Column, len(headers))
	for i, h := range headers {
		out[i].Header = h
	}
	return out
}

// ColumnOf makes a column for a kind whose objects have type P.
func ColumnOf[P metav1.Object](header string, cell func(P) []string) Column {
	return Column{Header: header, Cell: func(object metav1.Object) []string {
		o, ok := object.(P)
		if !ok {
			return nil
		}
		return cell(o)
	}}
}

// ReferencesOf makes Kind.References for a kind whose objects have type P.
func ReferencesOf[P metav1.Object](references func(P) []Key) func(metav1.Object) []Key {
	return func(object metav1.Object) []Key {
		o, ok := object.(P)
		if !ok {
			return nil
		}
		return references(o)
	}
}

// Custom reports whether the kind has a custom resource definition. A cluster may lack it, or serve it in other
// versions.
func (k *Kind) Custom() bool { return k.Definition.Files != nil }

// Excerpt reports whether only a part of the objects is decoded: the kind's Decoder was made by Excerpt.
func (k *Kind) Excerpt() bool { return k.Decoder.excerpt }

// Resource returns "httproutes.gateway.networking.k8s.io", which is also the name of a definition.
func (k *Kind) Resource() string {
	if k.Group == "" {
		return k.Plural
	}
	return k.Plural + "." + k.Group
}

// RefName returns the Kind in references to the objects.
func (k *Kind) RefName() string { return Key{Group: k.Group, Kind: k.Name}.Ref().Kind }

// Key returns the key of an object. It omits the namespace of a kind without namespaces.
func (k *Kind) Key(namespace, name string) Key {
	if k.Cluster {
		namespace = ""
	}
	return Key{Group: k.Group, Kind: k.Name, Namespace: namespace, Name: name}
}

// APIVersion joins the kind's group with a version.
func (k *Kind) APIVersion(version string) string {
	if k.Group == "" {
		return version
	}
	return k.Group + "/" + version
}

// instead returns a version that an API server serves, of the same form.
func (k *Kind) instead(version string) string {
	if served := k.Instead[version]; served != "" {
		return served
	}
	return version
}

// versionList formats the versions for messages: "group/v1 or group/v1beta1".
func (k *Kind) versionList() string {
	var list []string
	for _, v := range k.Versions {
		list = append(list, k.APIVersion(v))
	}
	return strings.Join(list, " or ")
}

// Kinds are kinds that are read together, in the order of output.
type Kinds []*Kind

// Find returns the kind, or nil.
func (all Kinds) Find(group, name string) *Kind {
	for _, k := range all {
		if k.Group == group && k.Name == name {
			return k
		}
	}
	return nil
}

// Of returns the kind of the referenced object, or nil.
func (all Kinds) Of(ref model.Ref) *Kind {
	for _, k := range all {
		if strings.HasPrefix(ref.Kind, k.Name) && k.RefName() == ref.Kind {
			return k
		}
	}
	return nil
}

// Key returns the key of the referenced object. The group of an unknown kind is empty.
func (all Kinds) Key(ref model.Ref) Key {
	if k := all.Of(ref); k != nil {
		return k.Key(ref.Namespace, ref.Name)
	}
	return Key{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// holding returns the kind of an object by its Go type. It panics if there is none.
func (all Kinds) holding(object any) *Kind {
	of := reflect.TypeOf(object)
	for _, k := range all {
		if k.Objects != nil && k.Objects.holds() == of {
			return k
		}
	}
	panic(fmt.Sprintf("%T is not read", object))
}

// InCluster returns the kinds that are read from a cluster.
func (all Kinds) InCluster() Kinds {
	return slices.DeleteFunc(slices.Clone(all), func(k *Kind) bool { return k.FilesOnly })
}

// Needed returns the kinds that are read from a cluster if there are objects of the kinds that has names: all but those
// that only other kinds need.
func (all Kinds) Needed(has func(*Kind) bool) Kinds {
	needed := map[*Kind]bool{} // of each kind that some kind needs, whether one does now
	for _, k := range all {
		there := len(k.Needs) > 0 && has(k)
		for _, n := range k.Needs {
			needed[n] = needed[n] || there
		}
	}
	return slices.DeleteFunc(all.InCluster(), func(k *Kind) bool {
		now, some := needed[k]
		return some && !now
	})
}

// Conversions returns the conversions of all kinds that have one.
func (all Kinds) Conversions() []convert.Kind {
	var out []convert.Kind
	for _, k := range all {
		if k.Conversion != nil {
			out = append(out, *k.Conversion)
		}
	}
	return out
}

// Converted reports whether Weir converts versions of a kind for an API server.
func (all Kinds) Converted(group, name string) bool {
	k := all.Find(group, name)
	return k != nil && k.Conversion != nil
}

// named returns the kinds with the name, in any group.
func (all Kinds) named(name string) Kinds {
	return slices.DeleteFunc(slices.Clone(all), func(k *Kind) bool { return k.Name != name })
}

// siblings lists the known kinds of an apiVersion's group, or of the same specification. It is empty if there are none.
func (all Kinds) siblings(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	var names []string
	for _, k := range all {
		if k.Custom() && (k.Group == group || k.Domain != "" && strings.HasSuffix(group, "."+k.Domain)) {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, ", ")
}

// misspelt returns the kind that an unknown one was most likely meant to be, or nil. It is a kind of the same group
// with a similar name, or of the same name with a similar group. Kubernetes itself has no version without a group but v1:
// any other is that of an object written without its group, as in the first SMI specification.
func (all Kinds) misspelt(group, version, name string) *Kind {
	var like Kinds
	var same *Kind // of the same name
	known, groupless := false, group == "" && version != "v1"
	for _, k := range all {
		known = known || slices.Contains(k.Unlike, name)
		switch {
		case k.Group == group || groupless && k.Custom() && k.Name != name:
			like = append(like, k)
		case k.Name != name || k.Group == "" || distance(group, k.Group) > 3 && group != "" && k.Common:
		case slices.Contains(k.Versions, version):
			return k
		case same == nil:
			same = k
		}
	}
	if same != nil {
		return same
	}
	if known {
		return nil
	}
	for _, k := range like {
		if distance(strings.ToLower(name), strings.ToLower(k.Name)) <= min(2, len(k.Name)/4) {
			return k
		}
	}
	return nil
}
