package kube

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/test/weirtest"
)

// impersonated is a kubeconfig of one who is the controller's ServiceAccount.
func impersonated(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = account
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + own, "system:authenticated"}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestControllerWorksWithItsRightsAlone runs a controller as its ServiceAccount, held by roles and admission policies as they are released:
// it leads, makes what Gateways need, says so, and nothing that it tries is forbidden.
func TestControllerWorksWithItsRightsAlone(t *testing.T) {
	definitions := convertible(t)
	for name, install := range map[string]func(*testing.T) []string{
		"all namespaces": func(t *testing.T) []string { policed(t); return nil },
		"with Rollouts": func(t *testing.T) []string {
			policedBy(t, "deploy/manifests/install-rollouts.yaml")
			return []string{"--rollouts"}
		},
		"named namespaces": func(t *testing.T) []string {
			namedNamespaces(t)
			return []string{"--namespaces=shop,blog"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ensureNamespace(t, own, "shop", "elsewhere")
			args := append([]string{"controller", "--kubeconfig=" + impersonated(t), "--namespace=" + own, "--name=test", "--proxy-image=weir:dev",
				"--feed-address=127.0.0.1:0", "--conversion-address=127.0.0.1:0", "--drain-delay=0s", "--admin=off", "--traffic-metrics"}, install(t)...)
			apiServices(t, "deploy/manifests/install.yaml")
			of := class(t)
			create(t, gatewayOf(of, "shop", "edge"), gatewayOf(of, "elsewhere", "edge"))
			var log lines
			run := weirtest.Command(args...)
			run.Stdout, run.Stderr = &log, &log
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- run.Wait() }()
			stop := func() {
				_ = run.Process.Signal(syscall.SIGTERM)
				if err := <-ended; err != nil {
					t.Errorf("%v\n%s", err, log.String())
				}
			}
			made := infra.Name("edge", of.Name)
			err := within(t.Context(), func() error {
				g := &gatewayv1.Gateway{}
				if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "edge"}, g); err != nil {
					return err
				}
				if !slices.ContainsFunc(g.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Accepted" && c.Status == "True" }) {
					return fmt.Errorf("conditions %+v", g.Status.Conditions)
				}
				c := &gatewayv1.GatewayClass{}
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(of), c); err != nil || len(c.Finalizers) != 1 {
					return fmt.Errorf("finalizers %v %w", c.Finalizers, err)
				}
				for _, o := range everything() {
					if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: made}, o); err != nil {
						return err
					}
				}
				for _, d := range definitions {
					if c := clientConfig(t, d); len(c.CABundle) == 0 || c.Service == nil || c.Service.Namespace != own {
						return fmt.Errorf("%s: the webhook is at %+v", d, c)
					}
				}
				for _, name := range metrics.APIServices() {
					u := apiService(name)
					if err := admin.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
						return err
					}
					if bundle, _, err := unstructured.NestedString(u.Object, "spec", "caBundle"); err != nil || bundle == "" {
						return fmt.Errorf("%s: no certificates, %w", name, err)
					}
				}
				for _, u := range []*unstructured.Unstructured{hooked("ValidatingWebhookConfiguration", access.RolloutsWebhook), hooked("MutatingWebhookConfiguration", access.WorkloadsWebhook)} {
					if name != "with Rollouts" {
						continue
					}
					if err := admin.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
						return err
					}
					hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
					if bundle, _, err := unstructured.NestedString(hooks[0].(map[string]any), "clientConfig", "caBundle"); err != nil || bundle == "" {
						return fmt.Errorf("%s: no certificates, %w", u.GetName(), err)
					}
				}
				if !strings.Contains(log.String(), `msg="the objects of the cluster are known" for="traffic metrics"`) {
					return errors.New("the objects of Traffic Metrics are not known")
				}
				return admin.Get(t.Context(), client.ObjectKey{Namespace: own, Name: "weir-controller"}, &coordinationv1.Lease{})
			})
			if err != nil {
				t.Errorf("%v\n%s", err, log.String())
			}
			err = admin.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: made}, &appsv1.Deployment{})
			if named := name == "named namespaces"; named && !apierrors.IsNotFound(err) {
				t.Errorf("in a namespace that is not watched: %v", err)
			}
			stop()
			// Libraries say so of requests that were under way when the process was told to end.
			text := strings.NewReplacer(`level=ERROR msg="Unexpected error when reading response body" err="context canceled"`, "",
				`level=ERROR msg="Error retrieving lease lock" err="context canceled"`, "").Replace(log.String())
			for _, word := range []string{"forbidden", "ValidatingAdmissionPolicy", "level=ERROR"} {
				if strings.Contains(text, word) {
					t.Errorf("the log has %q:\n%s", word, text)
					break
				}
			}
			// What stays is removed, as nobody collects it here.
			for _, ns := range []string{"shop", "elsewhere"} {
				for _, o := range everything() {
					o.SetNamespace(ns)
					o.SetName(made)
					if err := client.IgnoreNotFound(admin.Delete(t.Context(), o)); err != nil {
						t.Error(err)
					}
				}
			}
			for _, o := range []client.Object{&corev1.Secret{ObjectMeta: named(own, "weir-authority")}, &coordinationv1.Lease{ObjectMeta: named(own, "weir-controller")}} {
				if err := admin.Delete(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
			if err := admin.Patch(t.Context(), of, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
		})
	}
}
