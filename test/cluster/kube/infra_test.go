package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/model"
)

// applied is an Applier that may do no more than the controller may, and one Gateway that it works for.
type applied struct {
	*infra.Applier
	client.Client
	t       *testing.T
	gateway *gatewayv1.Gateway
}

const infraUser = "weir-infra"

func apply(t *testing.T, namespace string) *applied {
	t.Helper()
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	scheme := clientgoscheme.Scheme
	if err := gatewayv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	a := &applied{t: t}
	if a.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	a.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	a.gateway = &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "weir", Listeners: []gatewayv1.Listener{
			{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}},
	}
	a.create(a.gateway)

	if a.Applier, err = infra.NewApplier(controllerUser(t), nil, slog.New(slog.NewTextHandler(t.Output(), nil)), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a
}

// controllerUser lets infraUser do what the controller may in every namespace, and returns the configuration of one who is that user.
func controllerUser(t *testing.T) *rest.Config {
	t.Helper()
	return userWho(t, infraUser, access.Cluster(kinds))
}

// userWho lets a user do something in every namespace, and returns the configuration of one who is that user.
func userWho(t *testing.T, user string, may []access.Verb) *rest.Config {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}}
	for _, v := range may {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{v.Group}, Resources: []string{v.Resource}, Verbs: []string{v.Verb}})
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := objects.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

func (a *applied) create(o client.Object) {
	a.t.Helper()
	if err := a.Create(a.t.Context(), o); err != nil {
		a.t.Fatal(err)
	}
}

func (a *applied) name() model.Owner {
	return model.GatewayOwner(a.gateway.Namespace, a.gateway.Name)
}

// want gives the Applier a plan for the Gateway with these parameters and ports.
func (a *applied) want(p infra.Parameters, ports []int32, addresses ...netip.Addr) {
	options := infra.Options{Controller: "weir-controller.weir-system.svc:18000", Image: "weir:dev", CA: "x"}
	a.Set([]infra.Plan{{Gateway: a.name(), Objects: infra.Render(options, a.gateway, p, ports, addresses, len(addresses) == 0)}})
}

func (a *applied) eventually(what string, try func() error) {
	a.t.Helper()
	if err := within(a.t.Context(), try); err != nil {
		a.t.Fatalf("%s: %v", what, err)
	}
}

func (a *applied) get(into client.Object, name string) error {
	return a.Get(a.t.Context(), client.ObjectKey{Namespace: a.gateway.Namespace, Name: name}, into)
}

// everything is one of each kind that is made, empty.
func everything() []client.Object {
	return []client.Object{&corev1.ServiceAccount{}, &corev1.ConfigMap{}, &policyv1.PodDisruptionBudget{}, &corev1.Service{}, &appsv1.Deployment{}}
}

func (a *applied) all(name string) error {
	for _, o := range everything() {
		if err := a.get(o, name); err != nil {
			return err
		}
	}
	return nil
}

func (a *applied) none(name string) error {
	for _, o := range everything() {
		if err := a.get(o, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s: %v", o, name, err)
		}
	}
	return nil
}

func (a *applied) service(name string, check func(*corev1.Service) bool) {
	a.t.Helper()
	a.eventually("Service "+name, func() error {
		s := &corev1.Service{}
		if err := a.get(s, name); err != nil {
			return err
		}
		if !check(s) {
			return fmt.Errorf("spec %+v", s.Spec)
		}
		return nil
	})
}

func ports(s *corev1.Service) []int32 {
	var out []int32
	for _, p := range s.Spec.Ports {
		out = append(out, p.Port)
	}
	slices.Sort(out)
	return out
}

func TestInfrastructureIsMadeAndMended(t *testing.T) {
	a := apply(t, "mended")
	a.want(infra.Parameters{}, []int32{80, 443})
	a.eventually("everything", func() error { return a.all("edge-weir") })

	s, d := &corev1.Service{}, &appsv1.Deployment{}
	if err := a.get(s, "edge-weir"); err != nil {
		t.Fatal(err)
	}
	s.Spec.Ports[0].TargetPort.IntVal = 81
	s.Labels["app.kubernetes.io/managed-by"] = "somebody"
	if err := a.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a.service("edge-weir", func(s *corev1.Service) bool {
		return s.Spec.Ports[0].TargetPort.IntVal == 80 && s.Labels["app.kubernetes.io/managed-by"] == "weir"
	})

	if err := a.get(d, "edge-weir"); err != nil {
		t.Fatal(err)
	}
	d.Spec.Template.Spec.Containers[0].Image = "other"
	if err := a.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c := &corev1.ConfigMap{}
	if err := a.get(c, "edge-weir"); err != nil {
		t.Fatal(err)
	}
	c.Data["ca.crt"] = "other"
	if err := a.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := a.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "mended", Name: "edge-weir"}}); err != nil {
		t.Fatal(err)
	}
	a.eventually("mended", func() error {
		if err := a.all("edge-weir"); err != nil {
			return err
		}
		if err := a.get(d, "edge-weir"); err != nil || d.Spec.Template.Spec.Containers[0].Image != "weir:dev" {
			return fmt.Errorf("%s %w", d.Spec.Template.Spec.Containers[0].Image, err)
		}
		if err := a.get(c, "edge-weir"); err != nil || c.Data["ca.crt"] != "x" {
			return fmt.Errorf("%q %w", c.Data, err)
		}
		return nil
	})
}

// What others decide stays: the number of replicas and what the API server assigned to the Service.
func TestInfrastructureLeavesAloneWhatIsNotItsOwn(t *testing.T) {
	a := apply(t, "alone")
	a.want(infra.Parameters{}, []int32{80})
	a.eventually("everything", func() error { return a.all("edge-weir") })
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "alone", Name: "edge-weir"}}
	if err := a.SubResource("scale").Update(t.Context(), d, client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}})); err != nil {
		t.Fatal(err)
	}
	var before corev1.Service
	if err := a.get(&before, "edge-weir"); err != nil {
		t.Fatal(err)
	}
	a.want(infra.Parameters{}, []int32{80, 8080})
	a.service("edge-weir", func(s *corev1.Service) bool {
		return slices.Equal(ports(s), []int32{80, 8080}) && s.UID == before.UID && s.Spec.ClusterIP == before.Spec.ClusterIP &&
			s.Spec.Ports[0].NodePort == before.Spec.Ports[0].NodePort && before.Spec.Ports[0].NodePort != 0
	})
	if err := a.get(d, "edge-weir"); err != nil || *d.Spec.Replicas != 3 {
		t.Errorf("%d replicas, %v", *d.Spec.Replicas, err)
	}
	var p infra.Parameters
	p.Service.Type = corev1.ServiceTypeClusterIP
	a.want(p, []int32{8080})
	a.service("edge-weir", func(s *corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeClusterIP && slices.Equal(ports(s), []int32{8080}) && s.Spec.Ports[0].NodePort == 0 && s.UID == before.UID
	})
}

func TestInfrastructureGoesWithTheClass(t *testing.T) {
	a := apply(t, "class")
	a.want(infra.Parameters{}, []int32{80})
	a.eventually("everything", func() error { return a.all("edge-weir") })

	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "class", Name: "stranger", Labels: map[string]string{"app.kubernetes.io/managed-by": "weir", "gateway.networking.k8s.io/gateway-name": "edge"}}}
	a.create(stranger)
	a.gateway.Spec.GatewayClassName = "inner"
	a.want(infra.Parameters{}, []int32{80})
	a.eventually("those of the new class", func() error { return a.all("edge-inner") })
	a.eventually("none of the old class", func() error { return a.none("edge-weir") })

	a.Set([]infra.Plan{{Gateway: a.name(), Keep: true}})
	a.Set([]infra.Plan{{Gateway: a.name()}})
	a.eventually("none", func() error { return a.none("edge-inner") })
	if err := a.get(stranger, "stranger"); err != nil {
		t.Errorf("an object that was not made for the Gateway: %v", err)
	}
}

func (a *applied) problem(check func(infra.ObjectProblem) bool) {
	a.t.Helper()
	a.eventually("the problem", func() error {
		f, err := a.Found(a.t.Context(), a.name())
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(f.Problems, check) {
			return fmt.Errorf("problems %+v", f.Problems)
		}
		return nil
	})
}

func TestInfrastructureTakesNothingOver(t *testing.T) {
	a := apply(t, "foreign")
	a.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "foreign", Name: "edge-weir"}, Data: map[string]string{"mine": "yes"}})
	a.want(infra.Parameters{}, []int32{80})
	a.problem(func(p infra.ObjectProblem) bool { return p.Foreign && p.Kind == "ConfigMap" && p.Name == "edge-weir" })
	c := &corev1.ConfigMap{}
	if err := a.get(c, "edge-weir"); err != nil || len(c.Data) != 1 || len(c.OwnerReferences) > 0 || len(c.Labels) > 0 {
		t.Errorf("%+v %v", c, err)
	}
	if err := a.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	a.eventually("everything once it is out of the way", func() error { return a.all("edge-weir") })
	a.eventually("no problem", func() error {
		if f, err := a.Found(t.Context(), a.name()); err != nil || len(f.Problems) > 0 {
			return fmt.Errorf("%+v %w", f.Problems, err)
		}
		return nil
	})
}

func TestInfrastructureTellsOfAddressesThatAreRefused(t *testing.T) {
	a := apply(t, "addresses")
	var p infra.Parameters
	p.Service.Type = corev1.ServiceTypeClusterIP
	a.want(p, []int32{80}, netip.MustParseAddr("10.96.70.7"), netip.MustParseAddr("192.0.2.7"))
	a.service("edge-weir-10-96-70-7", func(s *corev1.Service) bool { return s.Spec.ClusterIP == "10.96.70.7" })
	a.problem(func(p infra.ObjectProblem) bool {
		return p.Refused && p.Name == "edge-weir-192-0-2-7" && strings.Contains(p.Message, "192.0.2.7")
	})
	a.want(p, []int32{80}, netip.MustParseAddr("10.96.70.7"))
	a.eventually("no problem", func() error {
		if f, err := a.Found(t.Context(), a.name()); err != nil || len(f.Problems) > 0 || len(f.Services) != 1 {
			return fmt.Errorf("%+v %w", f, err)
		}
		return nil
	})
}
