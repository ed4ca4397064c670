package access_test

import (
	"reflect"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/api/access"
)

// FuzzDecode feeds objects to the decoders. What is valid in one version of a TrafficTarget says the same in every other, and comes
// back from there.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"rules":[{"resources":[{"kind":"Pod","name":"*","namespace":"a"}],"methods":["GET"],"paths":["/"]}]}`,
		`{"subjects":[{"kind":"jobs","name":"a","apiGroup":"batch"}],"roleRef":{"kind":"ClusterTrafficRole","name":"r"}}`,
		`{"destination":{"kind":"ServiceAccount","name":"a","port":"80"},"sources":[{"kind":"IdentityBinding","name":"IdentityBinding:b"}],"specs":[{"kind":"TCPRoute","name":"r"}]}`,
		`{"metadata":{"annotations":{"access.smi-spec.io/port":"80"}},"spec":{"destination":{"kind":"ServiceAccount","name":"a","port":80},"sources":[{"kind":"ServiceAccount","name":"b"}],"rules":[{"kind":"HTTPRouteGroup","name":"r","matches":[]}]}}`,
		`{"metadata":{"annotations":{"access.smi-spec.io/port":"\"80\"","access.smi-spec.io/port-as-text":"true"}},"spec":{"destination":{"kind":"IdentityBinding","name":"a"},"sources":[{"kind":"IdentityBinding","name":"b"}],"rules":[{"kind":"UDPRoute","name":"r"}]}}`,
		`{"spec":{"schemes":{"podLabelSelectors":[{"name":"w","matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]}],"spiffeIdentities":["spiffe://a/b"]}}}`,
	} {
		f.Add([]byte(text))
	}
	kinds := []string{"TrafficRole", "ClusterTrafficRole", "TrafficRoleBinding", "ClusterTrafficRoleBinding", "IdentityBinding"}
	f.Fuzz(func(t *testing.T, text []byte) {
		var u map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts(text, &u) != nil || u == nil {
			return
		}
		for _, kind := range kinds {
			for _, version := range []string{"v1beta1", "v1alpha4"} {
				if o, errs := decode(kind, version, u); len(errs) == 0 && reflect.ValueOf(o).IsNil() {
					t.Fatalf("%s %s: neither an object nor an error", kind, version)
				}
			}
		}
		for _, from := range access.TargetVersions {
			u["apiVersion"], u["kind"] = access.Group+"/"+from, "TrafficTarget"
			of, errs := access.DecodeTrafficTarget(from, u)
			if len(errs) > 0 {
				continue
			}
			for _, to := range access.TargetVersions {
				out, err := access.Kinds()[0].Convert(u, to)
				if err != nil {
					t.Fatalf("%s is valid in %s and not converted to %s: %v", text, from, to, err)
				}
				got, errs := access.DecodeTrafficTarget(to, out)
				if len(errs) > 0 || !reflect.DeepEqual(got.Spec, of.Spec) {
					t.Fatalf("%s of %s says %+v in %s, was %+v (%v)", text, from, got, to, of, errs)
				}
			}
		}
	})
}
