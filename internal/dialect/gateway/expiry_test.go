package gateway_test

import (
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func TestExpiryIsToldOfCertificatesInUse(t *testing.T) {
	all := goldentest.All(t, leastGoldens)
	for file, used := range map[string][]model.Ref{
		// One of its Secrets is not used.
		"https":               {{Kind: "Secret", Namespace: "default", Name: "cert"}, {Kind: "Secret", Namespace: "default", Name: "wild"}},
		"policy":              {{Kind: "ConfigMap", Namespace: "default", Name: "ca"}},
		"frontend-validation": nil, // whatever it uses
	} {
		t.Run(file, func(t *testing.T) {
			set := goldentest.Load(t, all["testdata/"+file+".golden"])
			set.Expiries = map[resource.Key]resource.Finding{}
			tell := func(kind, namespace, name string) {
				k := resource.Key{Kind: kind, Namespace: namespace, Name: name}
				set.Expiries[k] = resource.Finding{Code: resource.CodeCertificateSoon, Ref: k.Ref()}
			}
			for _, s := range set.Secrets {
				tell("Secret", s.Namespace, s.Name)
			}
			for _, c := range set.ConfigMaps {
				tell("ConfigMap", c.Namespace, c.Name)
			}
			out := translate(set)
			told := map[model.Ref]int{}
			for _, f := range out.findings {
				if f.Code == resource.CodeCertificateSoon {
					told[f.Ref]++
				}
			}
			for _, c := range out.cfg.Certificates {
				ref := model.Ref{Kind: "Secret", Namespace: "default", Name: c.Name[len("default/"):]}
				if told[ref] != 1 {
					t.Errorf("%v: told %d times", ref, told[ref])
				}
			}
			for ref, n := range told {
				if n != 1 || used != nil && !slices.Contains(used, ref) {
					t.Errorf("%v: told %d times", ref, n)
				}
			}
			for _, ref := range used {
				if told[ref] != 1 {
					t.Errorf("%v: told %d times", ref, told[ref])
				}
			}
		})
	}
}
