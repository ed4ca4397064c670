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

// Kind describes a kind of objects that Weir reads, and is the one place that does. Sources, the status writer, permissions,
// commands and docs are made from it. It does not change once it is in use, and is shared.
type Kind struct {
	Group, Name string
	// Plural is its resource as paths have it, "httproutes".
	Plural string
	// Cluster says that its objects belong to no namespace.
	Cluster bool
	// Versions are those that are read. The first is that of the Go type, and the preferred one.
	Versions []string
	// Definition is the custom resource definition; the zero value is for kinds of Kubernetes itself.
	Definition Definition
	// Decoder makes the typed objects, Objects is where a Set has them; nil is nowhere.
	Decoder Decoder
	Objects Store
	// Complete, if set, recognises objects that are written without the apiVersion they should have, and returns that.
	Complete func(apiVersion, kind string, u map[string]any) (full string, ok bool)

	// FilesOnly says that it is read from files alone: a cluster has something else instead.
	FilesOnly bool
	// OnReference says that of a cluster only those objects are read that another object refers to; of the others only the names.
	OnReference bool
	// References, if set, returns the objects of such kinds that one of its objects refers to.
	References func(object metav1.Object) []Key
	// Essential says that nothing can be said of a cluster before its objects are known.
	Essential bool
	// Label, if set, is one that objects of a cluster must have to be read.
	Label string
	// Status says which status is written on its objects; nil is none.
	Status *StatusForm
	// Verbs are what is done to its objects in a cluster besides reading them and writing their status.
	Verbs []string
	// Conversion is how its versions are converted for an API server; nil if they differ in name alone.
	Conversion *convert.Kind

	// API is the specification that it belongs to, "SMI"; empty for Kubernetes. Domain is that of all the API's groups, if it has several.
	API, Domain string
	// Bundled says that Weir's own chart has the definition.
	Bundled bool
	// Without says what does not work in a cluster that lacks the kind, as the end of a sentence, and Missing how severe that is.
	Without string
	Missing Severity
	// Common says that other APIs have kinds of the same name, which are nothing to Weir.
	Common bool
	// Unlike are names of kinds of other APIs that are almost the same and not meant to be it.
	Unlike []string
	// Effects says what the lack of a field comes to, by the end of its path: "without FIELD ...". See FieldEffects.
	Effects map[string]string

	// Table is the first header of the table in which "weir status" lists its objects, if they have a status. Kinds may share one, with the
	// same columns.
	Table string
	// Columns are the other columns.
	Columns []Column
	// About says in the docs' table of kinds what of it is served, in Markdown.
	About string

	// schemas are compiled when they are first asked for.
	once    sync.Once
	schemas map[string]*schema // by version
}

// Definition is a custom resource definition, as YAML in a file. The zero value is none.
type Definition struct {
	Files fs.FS
	Name  string
}

// StatusForm says which parts of a status Weir writes, and of which kind they are.
type StatusForm struct {
	// Types are the types of conditions that are Weir's on objects of Weir. Those of others are left alone.
	Types []string
	// Conditions are there for the object itself, and Generation, Features, Addresses and Listeners as in Status.
	Conditions, Generation, Features, Addresses, Listeners bool
	// Parents and Ancestors have an entry each for those of this controller.
	Parents, Ancestors bool
	// Urgency orders what is written at the same time: more comes first. Objects with any are shared with other controllers as wholes, so
	// that a status is written after another look at the object.
	Urgency int
	// Pending says that the conditions Accepted and Programmed of an object that is no longer Weir's are Unknown again.
	Pending bool
}

// Column is one of a table of "weir status".
type Column struct {
	Header string
	// Cell is what an object has there; nil is for the columns that the command itself knows, such as ACCEPTED.
	Cell func(object metav1.Object) []string
}

// Columns are those that "weir status" knows, by their headers.
func Columns(headers ...string) []Column {
	out := make([]Column, len(headers))
	for i, h := range headers {
		out[i].Header = h
	}
	return out
}

// ColumnOf makes a column of a kind whose objects are of type P.
func ColumnOf[P metav1.Object](header string, cell func(P) []string) Column {
	return Column{Header: header, Cell: func(object metav1.Object) []string {
		o, ok := object.(P)
		if !ok {
			return nil
		}
		return cell(o)
	}}
}

// ReferencesOf makes Kind.References of a kind whose objects are of type P.
func ReferencesOf[P metav1.Object](references func(P) []Key) func(metav1.Object) []Key {
	return func(object metav1.Object) []Key {
		o, ok := object.(P)
		if !ok {
			return nil
		}
		return references(o)
	}
}

// Custom says that the kind has a custom resource definition, which a cluster may lack, or serve in other versions.
func (k *Kind) Custom() bool { return k.Definition.Files != nil }

// Resource is "httproutes.gateway.networking.k8s.io", which is also the name of a definition.
func (k *Kind) Resource() string {
	if k.Group == "" {
		return k.Plural
	}
	return k.Plural + "." + k.Group
}

// RefName is the Kind of references to its objects.
func (k *Kind) RefName() string { return Key{Group: k.Group, Kind: k.Name}.Ref().Kind }

// Key of one of its objects. The namespace of a kind that has none is left out.
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

// versionList is for messages: "group/v1 or group/v1beta1".
func (k *Kind) versionList() string {
	var list []string
	for _, v := range k.Versions {
		list = append(list, k.APIVersion(v))
	}
	return strings.Join(list, " or ")
}

// Kinds are kinds that are read together, in the order in which people are told of them.
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

// Of returns the kind of the object that a reference is to, or nil.
func (all Kinds) Of(ref model.Ref) *Kind {
	for _, k := range all {
		if strings.HasPrefix(ref.Kind, k.Name) && k.RefName() == ref.Kind {
			return k
		}
	}
	return nil
}

// Key of the object that a reference is to. Of a kind that is not known the group is empty.
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

// InCluster are those that are read of a cluster.
func (all Kinds) InCluster() Kinds {
	return slices.DeleteFunc(slices.Clone(all), func(k *Kind) bool { return k.FilesOnly })
}

// Conversions are those of all kinds that have one.
func (all Kinds) Conversions() []convert.Kind {
	var out []convert.Kind
	for _, k := range all {
		if k.Conversion != nil {
			out = append(out, *k.Conversion)
		}
	}
	return out
}

// Converted says whether versions of a kind are converted for an API server.
func (all Kinds) Converted(group, name string) bool {
	k := all.Find(group, name)
	return k != nil && k.Conversion != nil
}

// named returns the first kind of a name, whatever its group, or nil.
func (all Kinds) named(name string) *Kind {
	for _, k := range all {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// siblings lists the kinds that are read of an apiVersion's group, or of the same specification; empty if there are none.
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

// misspelt returns the kind that an unknown one was most likely meant to be, or nil: one of the same group whose name is almost the same,
// or one of the same name whose group is almost the same.
func (all Kinds) misspelt(group, name string) *Kind {
	var names []string
	known := false
	for _, k := range all {
		known = known || slices.Contains(k.Unlike, name)
		switch {
		case k.Group == group:
			names = append(names, k.Name)
		case k.Name == name && k.Group != "" && (distance(group, k.Group) <= 3 || group == "" || !k.Common):
			return k
		}
	}
	if known || len(names) == 0 {
		return nil
	}
	for _, n := range names {
		if distance(strings.ToLower(name), strings.ToLower(n)) <= min(2, len(n)/4) {
			return all.Find(group, n)
		}
	}
	return nil
}
