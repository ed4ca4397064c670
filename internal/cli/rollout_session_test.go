package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// sessionRelease writes a route that keeps sessions and a Rollout with steps. The ports are those of the endpoints of the
// Services blue and blue-canary; an empty one means none.
func (w *world) sessionRelease(steps, stable, canary string) {
	w.t.Helper()
	w.write("route.yaml", strings.Replace(w.route("blue"), "{name: all, backendRefs", "{name: all, sessionPersistence: {sessionName: shop}, backendRefs", 1))
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: blue}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: blue}
  strategy:
    canary:
      trafficRoutings: [{service: blue, gracePeriodSeconds: 0, gateway: {httpRouteName: all}}]
      steps: [%s]
`, steps)
	for name, port := range map[string]string{"blue": stable, "blue-canary": canary} {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: 80}]}\n", name)
		if port != "" {
			fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[2]s}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, port)
		}
	}
	w.write("services.yaml", b.String())
}

// awaitStep waits until a step is in force.
func (w *world) awaitStep(n int) {
	w.t.Helper()
	waitUntil(w.t, func() bool {
		return strings.Contains(w.rollouts("status", "blue", "--watch=false").stdout, fmt.Sprintf("Step %d of %d waits until", n, 4))
	})
}

// user is a client that keeps the cookie of its session, beside one of its own.
type user struct{ own, session string }

func (w *world) users(n int) (all []*user) {
	for range n {
		all = append(all, &user{own: "theme=dark"})
	}
	return all
}

// visit sends a request and returns which backend answered, and whether a session began.
func (w *world) visit(u *user) (backend string, began bool) {
	w.t.Helper()
	req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", w.port), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Cookie", strings.Trim(u.own+"; "+u.session, "; "))
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%v: a request failed: %s", err, resp.Status)
	}
	for _, c := range resp.Cookies() {
		u.session, began = c.Name+"="+c.Value, true
	}
	return string(body), began
}

// reached counts the users whom the canary answers.
func (w *world) reached(all []*user) (n int) {
	w.t.Helper()
	for _, u := range all {
		if backend, _ := w.visit(u); backend == "green" {
			n++
		}
	}
	return n
}

// stay checks that users meet the version that they met before, in the same sessions.
func (w *world) stay(all []*user, backend, when string) {
	w.t.Helper()
	for _, u := range all {
		if got, began := w.visit(u); got != backend || began {
			w.t.Errorf("%s a user of %s reached %s, in a new session: %t", when, backend, got, began)
		}
	}
}

// apart visits with each user, and divides them by who answers.
func (w *world) apart(all []*user) (blue, green []*user) {
	w.t.Helper()
	for _, u := range all {
		if backend, _ := w.visit(u); backend == "green" {
			green = append(green, u)
		} else {
			blue = append(blue, u)
		}
	}
	return blue, green
}

const byCookie = `{replicas: 1, matches: [{headers: [{name: Cookie, type: RegularExpression, value: "(.*;\\s*)?beta=yes(;.*)?"}]}]}`

func TestUsersStayWithTheirVersionUntilItHasNoShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	steps := byCookie + ", {traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 1}, {traffic: 100%, replicas: 1}"
	blue, green := w.backends["blue"], w.backends["green"]
	w.sessionRelease(steps, blue, "")
	w.run("--rollout-state", "off")
	old := w.users(10)
	if n := w.reached(old); n != 0 {
		t.Fatalf("%d users reached the canary before the release", n)
	}
	beta := []*user{{own: "beta=yes"}, {own: "theme=dark; beta=yes"}, {own: "beta=yes;theme=dark"}}
	others := []*user{{own: "beta=yesterday"}, {own: "alphabeta=yes"}, {own: "beta=no"}}
	w.stay(old, "blue", "before the release")

	w.sessionRelease(steps, blue, green)
	w.awaitStep(1)
	for range 3 {
		if n := w.reached(beta); n != len(beta) {
			t.Errorf("step 1: %d of %d users that it names reached the canary", n, len(beta))
		}
		if n := w.reached(others); n != 0 {
			t.Errorf("step 1: %d users that it does not name reached the canary", n)
		}
	}
	w.stay(beta, "green", "step 1:")
	w.stay(old, "blue", "step 1:")
	w.stay(others, "blue", "step 1:")

	w.rollouts("promote", "blue").want(t, 0)
	w.awaitStep(2)
	w.stay(beta, "green", "step 2:")
	w.stay(old, "blue", "step 2:")
	first, moved := w.apart(w.users(50))
	if len(moved) != 10 {
		t.Errorf("step 2: %d of 50 new users reached the canary, want 10: 20%%", len(moved))
	}
	stable, canary := append(old, first...), append(beta, moved...)

	w.rollouts("promote", "blue").want(t, 0)
	w.awaitStep(3)
	w.stay(canary, "green", "step 3:")
	w.stay(stable, "blue", "step 3:")
	if _, moved = w.apart(w.users(50)); len(moved) != 25 {
		t.Errorf("step 3: %d of 50 new users reached the canary, want 25: 50%%", len(moved))
	}

	w.rollouts("promote", "blue").want(t, 0)
	w.awaitStep(4)
	w.stay(canary, "green", "step 4:")
	if n := w.reached(stable); n != len(stable) {
		t.Errorf("step 4: %d of %d users of the stable version reached the canary: it has all requests", n, len(stable))
	}
	w.stay(stable, "green", "step 4:")

	w.rollouts("promote", "blue").want(t, 0)
	waitUntil(t, func() bool { return strings.Contains(w.rollouts("list").stdout, "‖ Waiting") })
	w.stay(stable, "green", "after all steps")
	w.stay(canary, "green", "after all steps")
	w.sessionRelease(steps, green, green) // the stable Service has the new version
	waitUntil(t, func() bool { return strings.Contains(w.rollouts("list").stdout, "✔ Healthy") })
	all := append(stable, canary...)
	if n := w.reached(all); n != len(all) {
		t.Errorf("after the release %d of %d users reached the new version", n, len(all))
	}
	w.stay(all, "green", "after the release")
}

func TestNobodyStaysOnACanaryWithoutAShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	steps := "{traffic: 50%, replicas: 1}, {replicas: 1}, {traffic: 50%, replicas: 1}, " + byCookie
	blue, green := w.backends["blue"], w.backends["green"]
	w.sessionRelease(steps, blue, green)
	w.run("--rollout-state", "off")
	w.awaitStep(1)
	all := w.users(20)
	if n := w.reached(all); n != 10 {
		t.Fatalf("%d of 20 users reached the canary, want 10", n)
	}
	w.rollouts("promote", "blue").want(t, 0)
	w.awaitStep(2)
	if n := w.reached(all); n != 0 {
		t.Errorf("%d users stay on the canary, which has no share in step 2", n)
	}
	w.rollouts("promote", "blue").want(t, 0)
	w.awaitStep(3)
	more := w.users(20)
	if n := w.reached(more); n != 10 {
		t.Errorf("%d of 20 users reached the canary, want 10", n)
	}
	w.rollouts("promote", "blue").want(t, 0)
	w.awaitStep(4)
	if n := w.reached(more); n != 0 {
		t.Errorf("%d users stay on the canary, though step 4 does not name them", n)
	}
	beta := []*user{{own: "beta=yes"}}
	if n := w.reached(beta); n != 1 {
		t.Error("step 4: the user that it names did not reach the canary")
	}
	w.rollouts("abort", "blue").want(t, 0)
	waitUntil(t, func() bool { return w.get() == "blue" && w.reached(beta) == 0 })
	if n := w.reached(append(all, more...)); n != 0 {
		t.Errorf("%d users stay on the canary of a release that was taken back", n)
	}
	w.stay(beta, "blue", "after the release")
}
