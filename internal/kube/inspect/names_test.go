package inspect

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestNamesAreThoseOfTheControllersFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		args     []string
		env      map[string]string
		suffixes []string
		domain   string
	}{
		"neither":     {args: []string{"controller"}},
		"flags":       {args: []string{"controller", "--external-names=example.com,corp.example", "--cluster-domain=k8s.test"}, suffixes: []string{"example.com", "corp.example"}, domain: "k8s.test"},
		"environment": {env: map[string]string{"WEIR_EXTERNAL_NAMES": "*", "WEIR_CLUSTER_DOMAIN": "k8s.test"}, suffixes: []string{"*"}, domain: "k8s.test"},
		"both":        {args: []string{"--external-names=example.com"}, env: map[string]string{"WEIR_EXTERNAL_NAMES": "*"}, suffixes: []string{"example.com"}},
	} {
		c := corev1.Container{Args: tt.args}
		for k, v := range tt.env {
			c.Env = append(c.Env, corev1.EnvVar{Name: k, Value: v})
		}
		var d appsv1.Deployment
		d.Spec.Template.Spec.Containers = []corev1.Container{c}
		if got := namesOf(&d); !slices.Equal(got.Suffixes, tt.suffixes) || got.ClusterDomain != tt.domain {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
