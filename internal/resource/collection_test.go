package resource

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// served is an object as an API server would serve it.
func served(t testing.TB, text string) *Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	o, err := Decode(everything, u)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func servedRoute(t testing.TB, namespace, name, spec string) *Object {
	return served(t, fmt.Sprintf(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"namespace":%q,"name":%q,"generation":2,"uid":"u"},
		"spec":%s,"status":{"parents":[{"parentRef":{"name":"g"},"controllerName":"example.com/c","conditions":[]}]}}`, namespace, name, spec))
}

func adoptedSecret(name, chain, key string) *Object {
	return Adopt(everything, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte(chain), corev1.TLSPrivateKeyKey: []byte(key)},
	})
}

func TestACollectionHoldsWhatWasPutAndNotRemoved(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		c := NewCollection(everything)
		there := make(map[Key]any)
		for range 300 {
			k := Key{Group: gatewayGroup, Kind: "HTTPRoute", Namespace: string(rune('a' + random.IntN(3))), Name: "r" + string(rune('a'+random.IntN(20)))}
			switch random.IntN(4) {
			case 0:
				c.Remove(k)
				delete(there, k)
			case 1:
				broken := servedRoute(t, k.Namespace, k.Name, `{"hostnames":"none"}`)
				if broken.Value() != nil || broken.GetObjectMeta().GetName() != k.Name {
					t.Fatalf("%v is not broken", broken.Key())
				}
				c.Put(broken) // the last good one stays
			default:
				o := servedRoute(t, k.Namespace, k.Name, `{}`)
				c.Put(o)
				there[k] = o.Value()
			}
			if random.IntN(10) > 0 {
				continue
			}
			var want []string
			for _, k := range slices.SortedFunc(maps.Keys(there), compareKeys) {
				want = append(want, fmt.Sprintf("%s %p", k, there[k]))
			}
			var got []string
			for _, r := range c.Set().HTTPRoutes {
				got = append(got, fmt.Sprintf("HTTPRoute %s/%s %p", r.Namespace, r.Name, r))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}

func TestABrokenObjectIsReportedWithItsField(t *testing.T) {
	c := NewCollection(everything)
	c.Put(servedRoute(t, "default", "a", `{"hostnames":["x.example"]}`))
	if set := c.Set(); hosts(set) != "a=x.example" || len(set.Findings) != 0 {
		t.Fatal(hosts(set), set.Findings)
	}
	c.Put(servedRoute(t, "default", "a", `{"hostnames":7}`))
	c.Put(servedRoute(t, "default", "b", `{"hostnames":7}`))
	set := c.Set()
	if hosts(set) != "a=x.example" {
		t.Errorf("hosts %q", hosts(set))
	}
	var got []string
	for _, f := range set.Findings {
		got = append(got, f.Code+" "+f.Ref.Name+" "+f.Ref.Field)
	}
	if want := []string{CodeLastGood + " a ", CodeType + " a spec.hostnames", CodeType + " b spec.hostnames"}; !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
	c.Put(servedRoute(t, "default", "a", `{"hostnames":["y.example"]}`))
	c.Remove(Key{Group: gatewayGroup, Kind: "HTTPRoute", Namespace: "default", Name: "b"})
	if set := c.Set(); hosts(set) != "a=y.example" || len(set.Findings) != 0 {
		t.Error(hosts(set), set.Findings)
	}
}

func TestAuthoritiesThatWereTakenAwayAreNotTrusted(t *testing.T) {
	ca, _ := newPair(t, time.Now().Add(-day), time.Now().Add(400*day))
	c := NewCollection(everything)
	for _, data := range []string{ca, "", ca, "nonsense", ca} {
		c.Put(Adopt(everything, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ca"}, Data: map[string]string{bundleKey: data},
		}))
		set := c.Set()
		if len(set.ConfigMaps) != 1 || set.ConfigMaps[0].Data[bundleKey] != data {
			t.Errorf("%q was put, the set has %v", data, set.ConfigMaps)
		}
		if broken := len(set.Findings) > 0; broken != (data != ca) {
			t.Errorf("%q: findings %v", data, set.Findings)
		}
	}
}

func TestAServedObjectKeepsItsStatusUnlessThatIsBroken(t *testing.T) {
	o := servedRoute(t, "default", "a", `{}`)
	if r := o.Value().(*gatewayv1.HTTPRoute); len(r.Status.Parents) != 1 || r.Generation != 2 {
		t.Errorf("route %+v", r)
	}
	o = served(t, `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"namespace":"default","name":"a"},"spec":{},"status":{"parents":7}}`)
	if r, ok := o.Value().(*gatewayv1.HTTPRoute); !ok || len(o.entry.findings) != 0 || len(r.Status.Parents) != 0 {
		t.Errorf("a broken status broke the route: %v", o.entry.findings)
	}
}

func TestServedMirrorsAreReportedAsThoseOfFiles(t *testing.T) {
	c := NewCollection(everything)
	c.Put(servedRoute(t, "default", "a", `{"rules":[{"filters":[{"type":"RequestMirror","requestMirror":{"backendRef":{"name":"s","port":80},"percent":101}}]}]}`))
	set := c.Set()
	if len(set.Findings) != 1 || set.Findings[0].Code != CodeMirrorPercent || len(set.HTTPRoutes) != 1 {
		t.Errorf("findings %v", set.Findings)
	}
}

func TestACollectionJudgesCertificatesAsADirDoes(t *testing.T) {
	now := time.Now()
	chain, key := newPair(t, now.Add(-day), now.Add(100*day))
	c := NewCollection(everything)
	c.now = func() time.Time { return now }
	c.Put(adoptedSecret("cert", chain, key))
	first := c.Set()
	if len(first.Secrets) != 1 || len(first.Findings) != 0 || c.Due() {
		t.Fatalf("findings %v, due %v", first.Findings, c.Due())
	}
	c.Put(adoptedSecret("cert", chain, "no key"))
	set := c.Set()
	if set.Secret("default", "cert") != first.Secret("default", "cert") {
		t.Error("a broken certificate took the place of a good one")
	}
	var text strings.Builder
	for _, f := range set.Findings {
		text.WriteString(f.String() + "\n")
	}
	if s := text.String(); !strings.Contains(s, CodeCertificate) || !strings.Contains(s, CodeLastGood) || !strings.Contains(s, "data[tls.key]") || strings.Contains(s, "no key") {
		t.Errorf("findings %s", s)
	}
	now = now.Add(95 * day)
	if !c.Due() {
		t.Error("nothing is due near the end of the certificate")
	}
	if set := c.Set(); len(set.Expiries) != 1 {
		t.Errorf("expiries %v", set.Expiries)
	}
}

func TestKindsOfAClusterLeaveEndpointsOut(t *testing.T) {
	for _, k := range everything.InCluster() {
		if k.Name == "Endpoints" {
			t.Error("Endpoints are read")
		}
		if k.Name == "HTTPRoute" && (!k.Custom() || k.Cluster || k.Versions[0] != "v1") {
			t.Errorf("%+v", k)
		}
	}
}

func TestAnObjectOfAnUnknownVersionIsNotRead(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/v9", "kind": "HTTPRoute"}}
	if _, err := Decode(everything, u); err == nil {
		t.Error("no error")
	}
}

// cluster is a collection with many objects.
func cluster(b *testing.B, routes, services int) *Collection {
	c := NewCollection(everything)
	for i := range routes {
		c.Put(servedRoute(b, fmt.Sprintf("ns%d", i%50), fmt.Sprintf("r%d", i), `{"hostnames":["x.example"]}`))
	}
	for i := range services {
		c.Put(Adopt(everything, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%d", i%50), Name: fmt.Sprintf("s%d", i)}}))
	}
	return c
}

// BenchmarkCollection is a Set after one route of 10,000 changed.
func BenchmarkCollection(b *testing.B) {
	c := cluster(b, 10000, 2000)
	changed := servedRoute(b, "ns7", "r7", `{}`)
	b.ReportAllocs()
	for b.Loop() {
		c.Put(changed)
		if set := c.Set(); len(set.HTTPRoutes) != 10000 {
			b.Fatal(len(set.HTTPRoutes))
		}
	}
}

// BenchmarkDecode decodes one route as an API server serves it.
func BenchmarkDecode(b *testing.B) {
	spec := `{"hostnames":["x.example"],"parentRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"g"}],
		"rules":[{"matches":[{"path":{"type":"PathPrefix","value":"/"}}],"backendRefs":[{"group":"","kind":"Service","name":"s","port":80,"weight":1}]}]}`
	b.ReportAllocs()
	for b.Loop() {
		servedRoute(b, "a", "b", spec)
	}
}

// FuzzDecode looks for objects that an API server without schemas might serve and that break the decoding.
func FuzzDecode(f *testing.F) {
	f.Add("gateway.networking.k8s.io/v1", "HTTPRoute", `{"hostnames":["a"]}`, `{"parents":[]}`)
	f.Add("split.smi-spec.io/v1alpha2", "TrafficSplit", `{"service":"a","backends":[{"service":"b","weight":1}]}`, `{}`)
	f.Add("gateway.networking.k8s.io/v1", "Gateway", `{"listeners":[{"name":7}]}`, `7`)
	f.Fuzz(func(t *testing.T, apiVersion, kind, spec, status string) {
		u := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"default","name":"a"},"spec":%s,"status":%s}`, apiVersion, kind, spec, status)
		if u.UnmarshalJSON([]byte(text)) != nil {
			return
		}
		o, err := Decode(everything, u)
		if err != nil {
			return
		}
		if o.GetObjectMeta().GetName() != "a" || o.Key().Name != "a" {
			t.Fatalf("%s has lost its name", o.Key())
		}
		if o.Value() == nil && len(o.entry.findings) == 0 {
			t.Fatal("nothing is said about a broken object")
		}
		c := NewCollection(everything)
		c.Put(o)
		c.Set()
	})
}
