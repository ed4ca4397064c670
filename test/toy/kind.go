package toy

import (
	"embed"
	"fmt"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

//go:embed toys.yaml
var files embed.FS

// toys are the Toys of a Set.
var toys = resource.NewList[*Toy]()

// Kind is the descriptor.
var Kind = &resource.Kind{
	Group: Group, Name: "Toy", Plural: "toys", Versions: []string{"v1", "v1beta1"},
	Definition: resource.Definition{Files: files, Name: "toys.yaml"},
	Decoder:    resource.Typed[Toy](), Objects: toys,
	Status: &resource.StatusForm{Types: []string{"Accepted", "ResolvedRefs"}, Conditions: true, Generation: true},
	References: resource.ReferencesOf(func(t *Toy) []resource.Key {
		if t.Spec.Path == "" {
			return nil
		}
		return []resource.Key{{Kind: "ConfigMap", Namespace: t.Namespace, Name: t.Spec.Path}}
	}),
	API: "Toys", Without: "nobody can play", Missing: resource.Info,
	Effects: map[string]string{"host": "the toy takes every host"},
	Table:   "TOY",
	Columns: append([]resource.Column{resource.ColumnOf("TO", func(t *Toy) []string {
		return []string{fmt.Sprintf("%s:%d", t.Spec.Service.Name, t.Spec.Service.Port)}
	})}, resource.Columns("ACCEPTED", "RESOLVED")...),
	About: "all of it | and more",
}

// Dialect is the front end.
var Dialect = dialect.Dialect{
	Name: "toy", Kinds: resource.Kinds{Kind}, Codes: codes,
	New: func(o dialect.Options) func(*resource.Set, dialect.Known) dialect.Result {
		return func(set *resource.Set, _ dialect.Known) dialect.Result { return translate(set, o.Partial) }
	},
}

// Dialects are Weir's and this one.
func Dialects() dialect.List { return append(dialect.All(), Dialect) }
