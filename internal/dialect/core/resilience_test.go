package core_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// annotated translates a Service of two ports with the annotations "name=value".
func annotated(t *testing.T, all ...string) (model.Service, []resource.Finding) {
	t.Helper()
	s := service(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "b", Port: 81})
	s.Annotations = map[string]string{"example.com/other": "x"}
	for _, a := range all {
		name, value, _ := strings.Cut(a, "=")
		s.Annotations["weirmesh.github.io/"+name] = value
	}
	cfg, _, findings := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{s}})
	a, b := cfg.Services[0], cfg.Services[1]
	if !reflect.DeepEqual([]any{a.Limits, a.Ejection, a.HealthCheck}, []any{b.Limits, b.Ejection, b.HealthCheck}) {
		t.Errorf("the ports differ: %+v %+v", a, b)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	return a, findings
}

func TestAnnotationsOfAService(t *testing.T) {
	seconds := func(n int) model.Duration { return model.Duration(time.Duration(n) * time.Second) }
	for name, x := range map[string]struct {
		annotations []string
		limits      *model.Limits
		ejection    *model.Ejection
		check       *model.HealthCheck
	}{
		"none": {},
		"limits": {
			annotations: []string{"max-requests=100", "max-requests-per-endpoint= 30 ", "max-connecting-per-endpoint=8", "retry-budget=0%"},
			limits:      &model.Limits{Requests: 100, EndpointRequests: 30, Connecting: 8, RetryPercent: to(0)},
		},
		"ejection": {
			annotations: []string{"eject-after-failures=off", "eject-after-gateway-errors=5", "max-ejected=30"},
			ejection:    &model.Ejection{Failures: -1, GatewayErrors: 5, MaxPercent: to(30)},
		},
		"no ejection for errors": {annotations: []string{"eject-after-gateway-errors=off"}},
		"TCP": {
			annotations: []string{"health-check=tcp"},
			check:       &model.HealthCheck{Type: model.CheckTCP, Interval: seconds(5), Timeout: seconds(1), Healthy: 2, Unhealthy: 3},
		},
		"gRPC": {
			annotations: []string{"health-check=grpc", "health-check-grpc-service=shop.Cart", "health-check-interval=500ms"},
			check: &model.HealthCheck{Type: model.CheckGRPC, Service: "shop.Cart", Interval: model.Duration(500 * time.Millisecond),
				Timeout: seconds(1), Healthy: 2, Unhealthy: 3},
		},
		"HTTP": {
			annotations: []string{"health-check=http", "health-check-path=/up?deep", "health-check-host=up.example:80", "health-check-statuses=200-204, 401",
				"health-check-timeout=2s", "health-check-healthy-threshold=1", "health-check-unhealthy-threshold=9"},
			check: &model.HealthCheck{Type: model.CheckHTTP, Path: "/up?deep", Host: "up.example:80", Statuses: []model.StatusRange{{From: 200, To: 204}, {From: 401, To: 401}},
				Interval: seconds(5), Timeout: seconds(2), Healthy: 1, Unhealthy: 9},
		},
		"switched off": {annotations: []string{"health-check=off", "health-check-path=/up"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, findings := annotated(t, x.annotations...)
			if len(findings) > 0 {
				t.Errorf("findings %+v", findings)
			}
			if !reflect.DeepEqual(s.Limits, x.limits) || !reflect.DeepEqual(s.Ejection, x.ejection) || !reflect.DeepEqual(s.HealthCheck, x.check) {
				t.Errorf("got %+v, %+v, %+v", s.Limits, s.Ejection, s.HealthCheck)
			}
		})
	}
}

func TestWrongAnnotationsAreReportedOnceAndPassedOver(t *testing.T) {
	for annotation, want := range map[string]string{
		"max-requests=0":                                       `"0" is not a whole number from 1 to 1000000`,
		"max-requests-per-endpoint=many":                       `"many" is not a whole number`,
		"max-connecting-per-endpoint=-3":                       `"-3" is not a whole number`,
		"retry-budget=101%":                                    `"101%" is not a percentage`,
		"max-ejected=half":                                     `"half" is not a percentage`,
		"eject-after-failures=0":                               `"0" is not off or a whole number`,
		"eject-after-gateway-errors=x":                         `"x" is not off or`,
		"health-check=icmp":                                    `"icmp" is not http, grpc, tcp or off`,
		"health-check-path=/up":                                "there is no weirmesh.github.io/health-check",
		"health-chek=http":                                     "unknown annotation",
		"health-check=http health-check-path=up":               `"up" is not a path`,
		"health-check=http health-check-host=a/b":              `"a/b" is not a host name`,
		"health-check=http health-check-statuses=2xx":          `"2xx" is not a list of status codes`,
		"health-check=http health-check-statuses=299-200":      `"299-200" is not`,
		"health-check=http health-check-interval=5":            `"5" is not a duration from 100ms to 1h0m0s`,
		"health-check=tcp health-check-timeout=1h":             `"1h" is not a duration`,
		"health-check=tcp health-check-healthy-threshold=0":    `"0" is not a whole number from 1 to 100`,
		"health-check=tcp health-check-unhealthy-threshold=1k": `"1k" is not a whole number`,
		"health-check=tcp health-check-path=/up":               "does not apply to health checks of the type tcp",
	} {
		all := strings.Fields(annotation)
		_, findings := annotated(t, all...)
		last, _, _ := strings.Cut(all[len(all)-1], "=")
		if len(findings) != 1 {
			t.Errorf("%s: findings %+v", annotation, findings)
			continue
		}
		f := findings[0]
		if f.Ref.Field != "metadata.annotations[weirmesh.github.io/"+last+"]" || f.Ref.Name != "a" || f.Fix == "" ||
			f.Severity != resource.Warning || !strings.Contains(f.Message, want) || !slices.Contains([]string{"WR483", "WR484"}, f.Code) {
			t.Errorf("%s: %+v, want %q", annotation, f, want)
		}
	}
}

func TestEndpointsAreAnnouncedToAsTheServiceSays(t *testing.T) {
	for text, want := range map[string]int{"v1": 1, " v2 ": 2, "none": 0} {
		if s, findings := annotated(t, "proxy-protocol="+text); s.ProxyProtocol != want || len(findings) > 0 {
			t.Errorf("%q: version %d, findings %v, want %d", text, s.ProxyProtocol, findings, want)
		}
	}
	for _, text := range []string{"", "1", "V2", "on", "v3", "v1,v2"} {
		s, findings := annotated(t, "proxy-protocol="+text)
		if s.ProxyProtocol != 0 || len(findings) != 1 || findings[0].Code != "WR483" || !strings.Contains(findings[0].Fix, "v1, v2 or none") {
			t.Errorf("%q: version %d, findings %v", text, s.ProxyProtocol, findings)
		}
	}
}

// TestTheServiceOfAReleaseHasTheSettingsOfTheStableOne, whoever made it; its own are before them.
func TestTheServiceOfAReleaseHasTheSettingsOfTheStableOne(t *testing.T) {
	stable := service(corev1.ServicePort{Port: 80})
	stable.Annotations = map[string]string{"weirmesh.github.io/max-requests": "7", "weirmesh.github.io/proxy-protocol": "v3"}
	canary := stable.DeepCopy()
	canary.Name, canary.Annotations = stable.Name+"-canary", map[string]string{"example.com/other": "x"}
	limits := func(canary *corev1.Service, findings int) *model.Limits {
		t.Helper()
		cfg, _, found := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{stable, canary}})
		if len(found) != findings {
			t.Errorf("%d findings: %v", findings, found)
		}
		return cfg.Services[slices.IndexFunc(cfg.Services, func(s model.Service) bool { return s.Ref.Name == canary.Name })].Limits
	}
	if got := limits(canary, 1); got != nil {
		t.Errorf("a Service that its user made has %+v", got)
	}
	made(canary)
	if got := limits(canary, 1); got == nil || got.Requests != 7 {
		t.Errorf("the Service of a release has %+v", got)
	}
	own := canary.DeepCopy()
	own.Annotations["weirmesh.github.io/max-requests"] = "none"
	if got := limits(own, 2); got != nil {
		t.Errorf("one with annotations of its own has %+v", got)
	}
	made(stable)
	stable.Name, canary.Name = "web-canary", "web-canary-canary"
	if got := limits(canary, 1); got == nil {
		t.Error("a Service with such a name is not released")
	}
	canary.Name = "other-canary"
	if got := limits(canary, 1); got != nil {
		t.Errorf("without the stable Service it has %+v", got)
	}
}
