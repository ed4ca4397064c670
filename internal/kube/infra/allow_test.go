package infra

import (
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestEveryParameterIsFreeOrGuarded makes the author of a new parameter decide whether a namespace's user may set it.
func TestEveryParameterIsFreeOrGuarded(t *testing.T) {
	fields := fieldsOf("", reflect.TypeFor[Parameters](), 1)
	for _, name := range fields {
		if name != classOnly && slices.Contains(free, name) == slices.Contains(guarded, name) {
			t.Errorf("%s is to be in one of the lists of what Gateways may set and may not", name)
		}
	}
	for _, name := range slices.Concat(free, guarded) {
		if !slices.Contains(fields, name) {
			t.Errorf("%s is no parameter", name)
		}
	}
}

// FuzzGatewayParametersKeepWhatIsGuarded holds that nothing a Gateway's ConfigMap may say changes what its class guards.
func FuzzGatewayParametersKeepWhatIsGuarded(f *testing.F) {
	for _, text := range []string{
		"image: example/evil:1", "Image: example/evil:1", "IMAGE: example/evil:1", "image: null", "env: {A: x}", "ENV: {A: x}", "env: null", "env: {}",
		"gateways: {allow: [image]}\nimage: x", "Gateways: {allow: [image]}", "replicas: 2", "service: {type: ClusterIP}", "\"im\\u0061ge\": x", "? image\n: x",
		"a: &a {image: x}\n<<: *a", "<<: {image: x}", "<<: [{image: x}, {env: {A: x}}]", "image: a\nimage: b", "{image: x, replicas: 1}", "\u0130mage: x", "ımage: x",
		"--- \nreplicas: 1\n---\nimage: x", "null", "[]", "tolerations: [{operator: Exists}]",
		"tracing: {endpoint: http://evil}", "tracing: null", "Tracing: {endpoint: http://evil}", "tracing: {share: 1}",
	} {
		f.Add(text)
	}
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "weir"}}
	_, of, err := decodeParameters([]byte("image: example/weir:1\nenv: {A: class, B: class}\ntracing: {endpoint: 'http://collector'}\n"))
	if err != nil {
		f.Fatal(err)
	}
	want, err := mergeParameters(of, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, document, err := decodeParameters([]byte(text))
		if err != nil || (GatewayFields{}).check(document, "at", class) != nil {
			return
		}
		got, err := mergeParameters(of, document)
		if err != nil {
			return
		}
		if got.Image != want.Image || !reflect.DeepEqual(got.Env, want.Env) || !reflect.DeepEqual(got.Tracing, want.Tracing) || !reflect.DeepEqual(got.Gateways, want.Gateways) {
			t.Errorf("%q makes image %q, env %v, traces %v, gateways %v", text, got.Image, got.Env, got.Tracing, got.Gateways)
		}
	})
}

// TestGatewaySetsWhatItsClassLetsIt checks for each field whether it may be set.
func TestGatewaySetsWhatItsClassLetsIt(t *testing.T) {
	for _, c := range []struct {
		fields GatewayFields
		text   string
		field  string // that is refused
	}{
		{GatewayFields{}, "image: x", "image"},
		{GatewayFields{}, "env: {A: x}", "env"},
		{GatewayFields{Allow: []string{"env"}}, "{env: {A: x}, image: x}", "image"},
		{GatewayFields{Allow: []string{"env", "image"}}, "{env: {A: x}, image: x}", ""},
		{GatewayFields{}, "{replicas: 2, tolerations: [{operator: Exists}]}", ""},
		{GatewayFields{Deny: []string{"tolerations"}}, "{replicas: 2, tolerations: [{operator: Exists}]}", "tolerations"},
		{GatewayFields{Deny: []string{"service.type"}}, "service: {type: ClusterIP}", "service.type"},
		{GatewayFields{Deny: []string{"service.type"}}, "service: null", "service.type"},
		{GatewayFields{Deny: []string{"service.type"}}, "service: {annotations: {a: b}}", ""},
		{GatewayFields{Allow: []string{"image"}, Deny: []string{"image"}}, "image: x", "image"},
		{GatewayFields{Allow: []string{"image", "env"}}, "gateways: {allow: [image]}", "gateways"},
		{GatewayFields{}, "tracing: {share: 5%}", "tracing"},
		{GatewayFields{Allow: []string{"tracing"}}, "tracing: {endpoint: 'http://c'}", ""},
		{GatewayFields{Allow: []string{"tracing"}, Deny: []string{"tracing.endpoint"}}, "tracing: {share: 5%}", ""},
		{GatewayFields{Allow: []string{"tracing"}, Deny: []string{"tracing.endpoint"}}, "tracing: {endpoint: 'http://c'}", "tracing.endpoint"},
		{GatewayFields{Allow: []string{"tracing"}, Deny: []string{"tracing.endpoint"}}, "tracing: null", "tracing.endpoint"},
	} {
		_, document, err := decodeParameters([]byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		if got, _ := c.fields.forbidden(document); got != c.field {
			t.Errorf("%+v: %s: %q is refused, want %q", c.fields, c.text, got, c.field)
		}
	}
}
