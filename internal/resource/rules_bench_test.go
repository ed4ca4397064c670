//go:build unix

package resource

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/weirmesh/weir/internal/resource/rules"
)

// ruled is an object as the rules get it: complete, and valid but for the rules.
type ruled struct {
	rules   *rules.Rules
	library *cel.Validator
	schema  *structuralschema.Structural
	object  map[string]any
}

// ruledObjects are the valid objects of the texts that have rules, decoded as always.
func ruledObjects(b testing.TB, texts ...[]byte) (all []ruled) {
	of, judges := map[*Kind]*rules.Rules{}, map[*Kind]*cel.Validator{}
	for _, text := range texts {
		for _, p := range splitFile(text, false) {
			value, _, _ := p.parse()
			u, _ := value.(map[string]any)
			apiVersion, _ := u["apiVersion"].(string)
			kindName, _ := u["kind"].(string)
			k := everything.Find(gatewayGroup, kindName)
			if k == nil || !k.Custom() || apiVersion != k.APIVersion("v1") {
				continue
			}
			if meta, ok := u["metadata"].(map[string]any); ok && meta["namespace"] == nil && !k.Cluster {
				meta["namespace"] = "default"
			}
			s := schemaOf(k, "v1").structural
			if _, known := of[k]; !known {
				of[k] = rules.New(s)
				judges[k] = cel.NewValidator(s, true, celconfig.PerCallLimit)
			}
			if of[k] == nil {
				continue
			}
			if _, ok := admit(k, "v1", u); ok {
				all = append(all, ruled{of[k], judges[k], s, u})
			}
		}
	}
	if len(all) == 0 {
		b.Fatal("no object has rules")
	}
	return all
}

// ways are those to know that the rules of an object hold: by the programs run here, and by the API server's validator.
var ways = []struct {
	name  string
	holds func(j ruled) bool
}{
	{"own", func(j ruled) bool {
		budget := int64(celconfig.RuntimeCELCostBudget)
		return j.rules.Hold(j.object, &budget)
	}},
	{"library", func(j ruled) bool {
		errs, _ := j.library.Validate(context.Background(), nil, j.schema, j.object, nil, celconfig.RuntimeCELCostBudget)
		return len(errs) == 0
	}},
}

// BenchmarkRules compares the two ways of running the rules of Gateway API, over the examples and over 1,000 routes.
func BenchmarkRules(b *testing.B) {
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil {
		b.Fatal(err)
	}
	var examples [][]byte
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		examples = append(examples, text)
	}
	for _, of := range []struct {
		name  string
		texts [][]byte
	}{{"examples", examples}, {"routes=1000", [][]byte{[]byte(manyRoutes(1000))}}} {
		objects := ruledObjects(b, of.texts...)
		for _, way := range ways {
			for _, j := range objects {
				way.holds(j) // compiled
			}
		}
		for _, way := range ways {
			b.Run(of.name+"/"+way.name, func(b *testing.B) {
				b.ReportAllocs()
				used := processorTime(b)
				for b.Loop() {
					for _, j := range objects {
						if !way.holds(j) {
							b.Fatalf("a rule of %v does not hold", j.object)
						}
					}
				}
				perSecond(b, used, len(objects))
			})
		}
	}
}

// BenchmarkRulesCold is what the first HTTPRoute costs in a process, whose rules nobody has compiled.
func BenchmarkRulesCold(b *testing.B) {
	j := ruledObjects(b, []byte(manyRoutes(1)))[0]
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			used := processorTime(b)
			for b.Loop() {
				cold := ruled{nil, nil, j.schema, j.object}
				if way.name == "own" {
					cold.rules = rules.New(j.schema)
				} else {
					cold.library = cel.NewValidator(j.schema, true, celconfig.PerCallLimit)
				}
				if !way.holds(cold) {
					b.Fatal("a rule does not hold")
				}
			}
			perSecond(b, used, 1)
		})
	}
}

// BenchmarkLoadByRules is BenchmarkLoad of 1,000 routes with both ways.
func BenchmarkLoadByRules(b *testing.B) {
	dir := b.TempDir()
	write(b, dir, "routes.yaml", manyRoutes(1000))
	s := schemaOf(everything.Find(gatewayGroup, "HTTPRoute"), "v1")
	own, library := s.rules, cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	defer func() { s.rules = own }()
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			if s.rules = own; way.name != "own" {
				s.rules = func(u map[string]any) field.ErrorList {
					errs, _ := library.Validate(context.Background(), nil, s.structural, u, nil, celconfig.RuntimeCELCostBudget)
					return errs
				}
			}
			b.ReportAllocs()
			used := processorTime(b)
			for b.Loop() {
				if set := mustLoad(b, dir); len(set.HTTPRoutes) != 1000 {
					b.Fatal(set.Findings)
				}
			}
			perSecond(b, used, 1000)
		})
	}
}

// processorTime is what the process has used so far: unlike time it does not grow with what else the machine does.
func processorTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// perSecond reports how many of the n objects of each round a processor can do.
func perSecond(b *testing.B, before time.Duration, n int) {
	b.ReportMetric(float64(n*b.N)/(processorTime(b)-before).Seconds(), "objects/cpu-s")
}
