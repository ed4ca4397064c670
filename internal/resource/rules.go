package resource

import (
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The API server's validator of CEL rules compiles every rule of a kind before the first object, and copies schemas for
// each field that a rule reads. That takes most of the time of reading many routes. So rules are first run here, by the
// same compiled programs, to learn whether all of them hold, which is the usual case. For any other result, an error or
// a cost near the limits, the API server's validator judges and words the finding.

// rules is the part of a schema that has rules in it.
type rules struct {
	schema     *structuralschema.Structural
	declared   *apicel.DeclType
	view       *view
	items      *rules
	additional *rules
	properties map[string]*rules

	once     sync.Once
	programs []celgo.Program
	// unsure means that something is not covered here.
	unsure bool
}

// newRules returns nil when the schema has no rules.
func newRules(s *structuralschema.Structural) *rules {
	return buildRules(s, model.SchemaDeclType(s, true), newView(model.WithTypeAndObjectMeta(s)))
}

// buildRules descends as cel.NewValidator does.
func buildRules(s *structuralschema.Structural, declared *apicel.DeclType, v *view) *rules {
	r := &rules{schema: s, declared: declared, view: v, unsure: declared == nil || v == nil || s.ValueValidation != nil && len(s.ValueValidation.AllOf) > 0}
	some := len(s.XValidations) > 0 || r.unsure
	if r.unsure {
		return r
	}
	if s.Items != nil {
		r.items = buildRules(s.Items, declared.ElemType, v.items)
		some = some || r.items != nil
	}
	for key, property := range s.Properties {
		var declaredField *apicel.DeclType
		if escaped, ok := apicel.Escape(key); !ok {
			declaredField = model.SchemaDeclType(&property, property.XEmbeddedResource)
		} else if f, ok := declared.Fields[escaped]; ok {
			declaredField = f.Type
		}
		if declaredField == nil {
			continue // its type is unknown to CEL, which leaves it out
		}
		fieldView, _ := v.properties[key].(*view)
		if p := buildRules(&property, declaredField, fieldView); p != nil {
			if r.properties == nil {
				r.properties = make(map[string]*rules)
			}
			r.properties[key] = p
			some = true
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		r.additional = buildRules(s.AdditionalProperties.Structural, declared.ElemType, v.additional)
		some = some || r.additional != nil
	}
	if !some {
		return nil
	}
	return r
}

// hold reports whether all rules hold for a value within the budget. If it returns false, they may not have been tried.
func (r *rules) hold(value any, budget *int64) bool {
	if r == nil || value == nil {
		return true
	}
	r.once.Do(r.compile)
	if r.unsure {
		return false
	}
	if len(r.programs) > 0 {
		self := &self{common.UnstructuredToVal(value, r.view)}
		for _, program := range r.programs {
			result, details, err := program.Eval(self)
			if err != nil || result != types.True || details == nil || details.ActualCost() == nil {
				return false
			}
			if *budget -= int64(*details.ActualCost()); *budget < 0 {
				return false
			}
		}
	}
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if !r.items.hold(item, budget) {
				return false
			}
		}
	case map[string]any:
		for key, field := range value {
			if !r.additional.hold(field, budget) || !r.properties[key].hold(field, budget) {
				return false
			}
		}
	}
	return true
}

func (r *rules) compile() {
	if r.unsure || len(r.schema.XValidations) == 0 {
		return
	}
	compiled, err := cel.Compile(r.schema, r.declared, celconfig.PerCallLimit,
		environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), cel.StoredExpressionsEnvLoader())
	if err != nil {
		r.unsure = true
		return
	}
	for i, c := range compiled {
		optionalOld := r.schema.XValidations[i].OptionalOldSelf
		switch {
		case c.Error != nil, optionalOld != nil && *optionalOld:
			r.unsure = true
			return
		case c.UsesOldSelf: // there is no old object
		case c.Program != nil:
			r.programs = append(r.programs, c.Program)
		}
	}
}

// self is the one variable of a rule.
type self struct{ value ref.Val }

func (s *self) ResolveName(name string) (any, bool) {
	if name == cel.ScopedVarName {
		return s.value, true
	}
	return nil, false
}

func (s *self) Parent() interpreter.Activation { return nil }

// view is a schema as CEL looks at it, with its parts made once.
type view struct {
	model.Structural
	properties map[string]common.Schema
	items      *view
	additional *view
}

func newView(s *structuralschema.Structural) *view {
	v := &view{Structural: model.Structural{Structural: s}}
	if s.Properties != nil {
		v.properties = make(map[string]common.Schema, len(s.Properties))
		for name, p := range s.Properties {
			v.properties[name] = newView(&p)
		}
	}
	if s.Items != nil {
		v.items = newView(s.Items)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		v.additional = newView(s.AdditionalProperties.Structural)
	}
	return v
}

// Properties implements common.Schema.
func (v *view) Properties() map[string]common.Schema { return v.properties }

// Items implements common.Schema.
func (v *view) Items() common.Schema {
	if v.items == nil {
		return nil
	}
	return v.items
}

// AdditionalProperties implements common.Schema.
func (v *view) AdditionalProperties() common.SchemaOrBool {
	if v.Structural.Structural.AdditionalProperties == nil {
		return nil
	}
	return additional{v}
}

type additional struct{ of *view }

func (a additional) Schema() common.Schema {
	if a.of.additional == nil {
		return nil
	}
	return a.of.additional
}

func (a additional) Allows() bool { return a.of.Structural.Structural.AdditionalProperties.Bool }
