package inspect

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestSettingsAreThoseOfTheControllersFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		env  map[string]string
		want Settings
	}{
		"none": {args: []string{"controller", "--mesh-authority-secret=x", "--meshes"}},
		"flags": {args: []string{"controller", "--mesh", "--mesh-subject-names=shop=a.example,shop=b.example", "--mesh-subject-names=blog=*.c.example", "--trust-domain=mesh.example", "--access-deny=all"},
			want: Settings{Mesh: true, TrustDomain: "mesh.example", Deny: "all", SubjectNames: []string{"shop=a.example", "shop=b.example", "blog=*.c.example"}}},
		"environment": {env: map[string]string{"WEIR_MESH": "true", "WEIR_TRUST_DOMAIN": "mesh.example", "WEIR_ACCESS_DENY": "all", "WEIR_MESH_SUBJECT_NAMES": "shop=a.example"},
			want: Settings{Mesh: true, TrustDomain: "mesh.example", Deny: "all", SubjectNames: []string{"shop=a.example"}}},
		"both": {args: []string{"--mesh=false", "--trust-domain=other.example", "--access-deny=governed"}, env: map[string]string{"WEIR_MESH": "true", "WEIR_TRUST_DOMAIN": "mesh.example", "WEIR_ACCESS_DENY": "all"}, want: Settings{TrustDomain: "other.example"}},
	} {
		c := corev1.Container{Args: tt.args}
		for k, v := range tt.env {
			c.Env = append(c.Env, corev1.EnvVar{Name: k, Value: v})
		}
		var d appsv1.Deployment
		d.Spec.Template.Spec.Containers = []corev1.Container{c}
		if got := settingsOf(&d); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
