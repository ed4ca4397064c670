package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/weirmesh/weir/internal/inject"
)

func pods() *Pods {
	s := inject.NewSettings()
	s.Image, s.Controller, s.Audience, s.Namespace = "weir-proxy:v1", "weir-controller.weir-system.svc:18000", "weir.weirmesh.github.io", "weir-system"
	return &Pods{Settings: s}
}

// podReview asks about a pod of namespace shop.
func podReview(pod string) []byte {
	return []byte(fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"version":"v1","kind":"Pod"},
		"resource":{"version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","object":%s}}`, pod))
}

func ask(t *testing.T, of func(context.Context, []byte) ([]byte, error), body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	answer, err := of(t.Context(), body)
	var review admissionv1.AdmissionReview
	if err != nil || json.Unmarshal(answer, &review) != nil || review.Response == nil || review.Response.UID != "u" {
		t.Fatalf("%v: %s", err, answer)
	}
	return review.Response
}

// TestPodsAreInjectedAndJudged goes the way of a pod: injected by a patch of its JSON, asked about again, and judged.
func TestPodsAreInjectedAndJudged(t *testing.T) {
	p := pods()
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","creationTimestamp":null,"annotations":{"a/b~c":"d"}},
		"spec":{"later":1,"containers":[{"name":"web","image":"web","later":{"a":[1]},"resources":{}}]},"status":{}}`
	if r := ask(t, p.Final, podReview(pod)); r.Allowed || !strings.Contains(r.Result.Message, "Pod shop/web-... must not start without its sidecar:\n- annotation weirmesh.github.io/sidecar: the pod asks for a sidecar and has none") || r.Result.Code != 403 {
		t.Errorf("one that was not injected: %+v", r)
	}
	r := ask(t, p.Inject, podReview(pod))
	if !r.Allowed || r.PatchType == nil || len(r.Warnings) > 0 {
		t.Fatalf("%+v", r)
	}
	var before map[string]any
	var all []operation
	if err := errors.Join(json.Unmarshal([]byte(pod), &before), json.Unmarshal(r.Patch, &all)); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(patched(t, before, all))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"later":1`, `"later":{"a":[1]}`, `"name":"weir-sidecar"`, `"creationTimestamp":null`, `"failureThreshold":86400`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the pod lacks %s: %s", want, out)
		}
	}
	if r := ask(t, p.Inject, podReview(string(out))); !r.Allowed || r.Patch != nil {
		t.Errorf("once more: %+v %s", r, r.Patch)
	}
	if r := ask(t, p.Final, podReview(string(out))); !r.Allowed {
		t.Errorf("the final pod: %+v", r.Result)
	}
	changed := strings.Replace(string(out), `"name":"weir-sidecar"`, `"name":"sidecar"`, 1)
	if r := ask(t, p.Final, podReview(changed)); r.Allowed || !strings.Contains(r.Result.Message, "spec.initContainers[weir-sidecar]: it was injected and is not there any more") {
		t.Errorf("without: %+v", r.Result)
	}
	if s := p.Stats(); s != (PodStats{Injected: 2, Refused: 2}) {
		t.Errorf("%+v", s)
	}
}

func TestPodsThatCannotBeInjectedAreTold(t *testing.T) {
	p := pods()
	r := ask(t, p.Inject, podReview(`{"metadata":{"name":"a\u0007b","annotations":{"weirmesh.github.io/skip-users":"root"}},"spec":{}}`))
	if r.Allowed || !strings.Contains(r.Result.Message, "cannot have the sidecar that is asked for:\n- annotation weirmesh.github.io/skip-users \"root\": this is no user") || strings.Contains(r.Result.Message, "\u0007") {
		t.Errorf("%+v", r.Result)
	}
	r = ask(t, p.Inject, podReview(`{"metadata":{"name":"a"},"spec":{"hostNetwork":true}}`))
	if !r.Allowed || r.Patch != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "Pod shop/a gets no sidecar: spec.hostNetwork") {
		t.Errorf("%+v", r)
	}
	r = ask(t, p.Inject, podReview(`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]}}`))
	if !r.Allowed || r.Patch == nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "Guaranteed") {
		t.Errorf("%+v", r)
	}
	for _, body := range []string{"{}", strings.Replace(string(podReview("{}")), `"pods"`, `"nodes"`, 1), strings.Replace(string(podReview("{}")), "CREATE", "DELETE", 1), string(podReview(`{"spec":[]}`))} {
		for _, answer := range []func() ([]byte, error){
			func() ([]byte, error) { return p.Inject(t.Context(), []byte(body)) }, func() ([]byte, error) { return p.Final(t.Context(), []byte(body)) },
		} {
			if out, err := answer(); err == nil {
				t.Errorf("%s: %s", body, out)
			}
		}
	}
}

// TestPodsThatTLSConfigsSelect get sidecars without a label; the API server's own list says which these are.
func TestPodsThatTLSConfigsSelect(t *testing.T) {
	p := pods()
	lists := 0
	var fails error
	p.Selecting = func(ctx context.Context, namespace string, labels map[string]string) ([]string, error) {
		if _, bounded := ctx.Deadline(); !bounded || namespace != "shop" {
			t.Errorf("namespace %s, a time %t", namespace, bounded)
		}
		if lists++; fails != nil || labels["app"] != "pay" {
			return nil, fails
		}
		return []string{"pay"}, nil
	}
	pod := func(labels, spec string) []byte {
		return podReview(fmt.Sprintf(`{"metadata":{"name":"a","labels":{%s}},"spec":{%s"containers":[{"name":"a"}]}}`, labels, spec))
	}
	const selected, other, optedOut, asks = `"app":"pay"`, `"app":"web"`, `"app":"pay","weirmesh.github.io/inject":"disabled"`, `"app":"web","weirmesh.github.io/inject":"enabled"`
	if r := ask(t, p.InjectSelected, pod(selected, "")); !r.Allowed || !strings.Contains(string(r.Patch), `"weir-sidecar"`) {
		t.Errorf("one that is selected: %+v", r)
	}
	if r := ask(t, p.FinalSelected, pod(selected, "")); r.Allowed || !strings.Contains(r.Result.Message, "must not start without its sidecar") {
		t.Errorf("one that is selected and has none: %+v", r)
	}
	for _, answer := range []func(context.Context, []byte) ([]byte, error){p.InjectSelected, p.FinalSelected} {
		if r := ask(t, answer, pod(other, "")); !r.Allowed || r.Patch != nil || len(r.Warnings) > 0 {
			t.Errorf("another one: %+v", r)
		}
	}
	if r := ask(t, p.InjectSelected, pod(selected, `"os":{"name":"windows"},`)); !r.Allowed || r.Patch != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "gets no sidecar: spec.os") {
		t.Errorf("of Windows: %+v", r)
	}
	if r := ask(t, p.InjectSelected, pod(optedOut, "")); !r.Allowed || r.Patch != nil {
		t.Errorf("one that opts out: %+v", r)
	}
	if r := ask(t, p.FinalSelected, pod(optedOut, "")); !r.Allowed || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "Pod shop/a gets no sidecar by TLSConfig pay: its label weirmesh.github.io/inject is disabled") {
		t.Errorf("one that opts out: %+v", r)
	}
	lists = 0
	if r := ask(t, p.InjectSelected, pod(asks, "")); !r.Allowed || r.Patch == nil || lists > 0 {
		t.Errorf("one that asks itself, after %d lists: %+v", lists, r)
	}
	fails = errors.New("no list")
	for _, answer := range []func(context.Context, []byte) ([]byte, error){p.InjectSelected, p.FinalSelected} {
		if r := ask(t, answer, pod(selected, "")); r.Allowed || !strings.Contains(r.Result.Message, "cannot be stored while it is not known whether it is to have a sidecar:\n- TLSConfigs of the namespace: no list") {
			t.Errorf("nobody knows: %+v", r)
		}
		if answer, err := answer(t.Context(), podReview(`{"spec":[]}`)); err == nil {
			t.Errorf("no pod: %s", answer)
		}
	}
	if r := ask(t, p.FinalSelected, pod(optedOut, "")); !r.Allowed || len(r.Warnings) > 0 {
		t.Errorf("nobody knows about one that opts out: %+v", r)
	}
}
