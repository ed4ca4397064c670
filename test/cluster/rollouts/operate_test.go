package rollouts

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/cli"
	"github.com/weirmesh/weir/internal/kube/infra"
)

// weirAs runs a command of "kubectl weir rollout" in the world's namespace in the name of a user.
func (w *world) weirAs(user string, args ...string) (code int, stdout, stderr string) {
	w.Helper()
	var out, err bytes.Buffer
	code = cli.Main(append(append([]string{"kubectl-weir", "rollout"}, args...), "--kubeconfig", server.Kubeconfig, "-n", w.namespace, "--as", user), nil, &out, &err)
	return code, out.String(), err.String()
}

// operator has the role of docs/rollouts.md in the namespaces of tests, and nothing else; reader may only read Rollouts. viewer and
// editor have Kubernetes' roles of that kind, with what the chart adds to them.
const operator, reader, viewer, editor = "ada", "eve", "vera", "edna"

// chartRoles are the roles for people that the chart has Kubernetes add to its own, by the role.
func chartRoles(t *testing.T) map[string]*rbacv1.ClusterRole {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/manifests/install-rollouts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]*rbacv1.ClusterRole{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if !strings.Contains(document, "kind: ClusterRole\n") {
			continue
		}
		if err := yaml.Unmarshal([]byte(document), role); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"view", "edit"} {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+to] == "true" {
				roles[to] = role
			}
		}
	}
	if len(roles) != 2 {
		t.Fatalf("the chart has roles for %d of view and edit", len(roles))
	}
	return roles
}

// weir runs a command in the operator's name.
func (w *world) weir(args ...string) (code int, stdout, stderr string) {
	w.Helper()
	return w.weirAs(operator, args...)
}

// permit gives both users their roles in the world's namespace.
func (w *world) permit() {
	w.Helper()
	page, err := os.ReadFile("../../../docs/rollouts.md")
	if err != nil {
		w.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "```yaml\napiVersion: rbac.authorization.k8s.io/v1\n")
	text, _, ended := strings.Cut(text, "```")
	documented := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte("apiVersion: rbac.authorization.k8s.io/v1\n"+text), documented); err != nil || !found || !ended {
		w.Fatalf("docs/rollouts.md has no role: %v", err)
	}
	for user, rules := range map[string][]rbacv1.PolicyRule{
		operator: documented.Rules,
		reader:   {{APIGroups: []string{rollouts.Group}, Resources: []string{"rollouts"}, Verbs: []string{"get"}}},
	} {
		meta := metav1.ObjectMeta{Namespace: w.namespace, Name: user}
		if err := admin.Create(w.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}); err != nil {
			w.Fatal(err)
		}
		binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}}
		if err := admin.Create(w.Context(), binding); err != nil {
			w.Fatal(err)
		}
	}
	own := chartRoles(w.T)
	for _, role := range own {
		if err := admin.Create(w.Context(), role); err != nil && !apierrors.IsAlreadyExists(err) {
			w.Fatal(err)
		}
	}
	// No controller puts the roles together here, so their parts are bound one by one.
	for user, names := range map[string][]string{
		viewer: {"system:aggregate-to-view", own["view"].Name}, editor: {"system:aggregate-to-view", own["view"].Name, "system:aggregate-to-edit", own["edit"].Name},
	} {
		for i, name := range names {
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("%s-%d", user, i)}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}}
			if err := admin.Create(w.Context(), binding); err != nil {
				w.Fatal(err)
			}
		}
	}
	w.shows("list", "web") // the API server has seen the roles
}

// grants has users try who have roles of Kubernetes and the chart: a viewer sees all of it and changes nothing, an editor changes it.
func (w *world) grants() {
	w.Helper()
	for _, user := range []string{viewer, editor} {
		if code, out, err := w.weirAs(user, "get", "web"); code != 0 || !strings.Contains(out, "Step:      1/3") || strings.Contains(out, "Unread:") {
			w.Errorf("%s: exit code %d\n%s\n%s", user, code, out, err)
		}
	}
	for _, verb := range []string{"pause", "resume"} {
		if code, out, err := w.weirAs(editor, verb, "web"); code != 0 {
			w.Errorf("%s: exit code %d\n%s\n%s", verb, code, out, err)
		}
	}
	if code, out, err := w.weirAs(viewer, "pause", "web"); code != 1 || !strings.Contains(err, `cannot patch resource "rollouts" in API group`) {
		w.Errorf("exit code %d\n%s\n%s", code, out, err)
	}
	if code, out, err := w.weirAs(viewer, "promote", "web"); code != 1 || !strings.Contains(err, `cannot patch resource "rollouts/status"`) {
		w.Errorf("exit code %d\n%s\n%s", code, out, err)
	}
}

// does runs a command that has to succeed and say something.
func (w *world) does(says string, args ...string) {
	w.Helper()
	if code, out, err := w.weir(args...); code != 0 || !strings.Contains(out, says) {
		w.Fatalf("%s: exit code %d\n%s\n%s\nwant %q", args, code, out, err, says)
	}
}

// fails runs a command that has to fail and say why.
func (w *world) fails(says string, args ...string) {
	w.Helper()
	if code, out, err := w.weir(args...); code != 1 || !strings.Contains(err, says) {
		w.Fatalf("%s: exit code %d\n%s\n%s\nwant %q", args, code, out, err, says)
	}
}

// shows waits until a command shows all of some texts.
func (w *world) shows(args string, texts ...string) {
	w.Helper()
	err := within(w.Context(), func() error {
		code, out, err := w.weir(strings.Fields(args)...)
		for _, text := range texts {
			if code != 0 || !strings.Contains(out, text) {
				return fmt.Errorf("%s: exit code %d\n%s\n%s\nwant %q", args, code, out, err, text)
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// forbids has a user try who may only read the Rollout: he is told what he may not do, and sees what he may.
func (w *world) forbids() {
	w.Helper()
	for verb, says := range map[string]string{
		"promote": `cannot patch resource "rollouts/status" in API group "rollouts.kruise.io" in the namespace "` + w.namespace + `"; docs/rollouts.md has the role`,
		"abort":   `cannot patch resource "rollouts" in API group`,
		"undo":    `cannot get resource "` + strings.ToLower(w.kind.Kind) + `s" in API group "apps"`,
		"history": `cannot get resource "` + strings.ToLower(w.kind.Kind) + `s" in API group "apps"`,
	} {
		if code, out, err := w.weirAs(reader, verb, "web"); code != 1 || !strings.Contains(err, `User "`+reader+`" `+says) {
			w.Errorf("%s: exit code %d\n%s\n%s\nwant %q", verb, code, out, err, says)
		}
	}
	code, out, err := w.weirAs(reader, "get", "web")
	if code != 0 || !strings.Contains(out, "Step:      1/3") || !strings.Contains(out, "Unread:") {
		w.Errorf("exit code %d\n%s\n%s", code, out, err)
	}
}

// ownedByPeople holds that what a command changed of the workload counts as its user's: of what the field owner of Gateways' objects
// has written the controller may change nothing else.
func (w *world) ownedByPeople() {
	w.Helper()
	u, err := w.get(w.kind)
	if err != nil {
		w.Fatal(err)
	}
	var owners []string
	for _, f := range u.GetManagedFields() {
		owners = append(owners, f.Manager)
	}
	if !slices.Contains(owners, "kubectl-weir") || slices.Contains(owners, infra.FieldOwner) {
		w.Errorf("the workload's fields belong to %v", owners)
	}
}

// TestCommandsControlARelease pauses, promotes, aborts, retries and undoes releases by the commands of "kubectl weir rollout",
// while Weir's controller carries them out.
func TestCommandsControlARelease(t *testing.T) {
	t.Parallel()
	for _, k := range []struct{ name, kind, spec, strategy, revision string }{
		{"a Deployment", "Deployment", "replicas: 3", "{canary: {" + route + ", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}, {traffic: 60%, replicas: 2}]}}", "revision 2 (canary)"},
		{"a StatefulSet", "StatefulSet", "replicas: 3\n  serviceName: web\n  podManagementPolicy: Parallel", "{canary: {" + route + ", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}, {traffic: 60%, replicas: 2}]}}", "revision 2 (canary)"},
	} {
		if testing.Short() && k.kind != "Deployment" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, k.kind, k.spec, k.strategy)
			w.settled("v1")
			before := w.written()
			c := w.start(1, false)
			w.until(rollouts.PhaseHealthy, 0)
			w.permit()
			w.shows("list", "✔ Healthy")
			w.fails("promote "+w.namespace+"/web: nothing is being released", "promote", "web")
			w.fails("there is no such Rollout", "pause", "other")

			w.release("v2")
			w.until(rollouts.PhaseProgressing, 1)
			w.shows("get web", "‖ Paused", "Step:      1/3", "Set:       20 %", k.revision, "Service web-canary: 1 of 1 pod ready, v2", "revision 1 (stable), Service web: 2 of 2 pods ready, v1", "Workload:  "+k.kind+" web, 3 pods", "Last events:")
			w.forbids()
			w.grants()
			w.does("stays where it is", "pause", "web")
			if code, out, err := w.weirAs(editor, "promote", "web"); code != 0 || !strings.Contains(out, "waits for resume") {
				t.Fatalf("%d %s %s", code, out, err)
			}
			w.shows("get web", "‖ Paused", "The Rollout is paused.")
			w.does("The Rollout goes on.", "resume", "web")
			w.until(rollouts.PhaseProgressing, 2)
			w.shows("list", "2/3", "50 %")
			w.does("begins again with step 1 of 3", "restart", "web")
			w.until(rollouts.PhaseProgressing, 1)
			w.does("goes to step 3 of 3", "promote", "web", "--step", "3")
			w.until(rollouts.PhaseProgressing, 3)

			w.does("All requests go to the stable version", "abort", "web")
			if code, out, err := w.weir("status", "web", "--timeout", "1m"); code != 1 || !strings.Contains(out, "Aborted: ") {
				t.Fatalf("%d %s %s", code, out, err)
			}
			w.fails("aborted already", "abort", "web")
			w.does("begins again with its first step", "retry", "web")
			w.until(rollouts.PhaseProgressing, 1)

			w.does(k.kind+" web has the template of revision 1", "undo", "web")
			w.ownedByPeople()
			w.until(rollouts.PhaseHealthy, 0)
			w.same(before, "v1")

			w.release("v3")
			w.until(rollouts.PhaseProgressing, 1)
			w.does("skipped", "promote", "web", "--full")
			w.does("Healthy: ", "status", "web", "--timeout", "1m")
			w.same(before, "v3")
			w.shows("history web", "stable", "v1", "v3")
			if testing.Short() {
				c.stop()
				return
			}

			w.does("releases it step by step", "undo", "web")
			w.until(rollouts.PhaseProgressing, 1)
			w.shows("get web", "Service web-canary: 1 of 1 pod ready, v1")
			w.does("skipped", "promote", "web", "--full")
			w.same(before, "v1")
			c.stop()
		})
	}
}
