package inspect

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/model"
)

// Settings are flags of the controller by which objects mean something else in its cluster. The zero value is that of a
// controller without these flags, and that of one that may not be read.
type Settings struct {
	// Mesh is that pods may have sidecars (--mesh).
	Mesh bool
	// TrustDomain is that of identities (--trust-domain); empty is the default.
	TrustDomain string
	// Deny is when workloads deny (--access-deny); empty is the default.
	Deny model.Deny
	// SubjectNames are those of --mesh-subject-names.
	SubjectNames []string
}

// ReadSettings reads them from the controller's Deployment; an empty namespace means wherever it runs.
func ReadSettings(ctx context.Context, c *kube.Client, namespace string) (Settings, error) {
	r := &reader{client: c, Options: Options{Namespace: namespace}, out: &Cluster{}}
	d, err := r.deployment(ctx)
	if d == nil || err != nil {
		return Settings{}, err
	}
	return settingsOf(d), nil
}

func settingsOf(d *appsv1.Deployment) (s Settings) {
	for _, container := range d.Spec.Template.Spec.Containers {
		of := func(name string) string {
			return environment(container.Env, "WEIR_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		}
		s.Mesh = s.Mesh || of("mesh") == "true"
		names, domain, deny := of("mesh-subject-names"), of("trust-domain"), of("access-deny")
		var given []string
		for _, arg := range container.Args { // they go first
			name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			switch {
			case arg == "--mesh":
				s.Mesh = true
			case !strings.HasPrefix(arg, "--"):
			case name == "mesh":
				s.Mesh = value == "true"
			case name == "mesh-subject-names":
				given = append(given, strings.Split(value, ",")...)
			case name == "trust-domain":
				domain = value
			case name == "access-deny":
				deny = value
			}
		}
		if given == nil && names != "" {
			given = strings.Split(names, ",")
		}
		s.SubjectNames = append(s.SubjectNames, given...)
		if domain != "" {
			s.TrustDomain = domain
		}
		if deny == string(model.DenyAll) { // the other value, governed, is the default
			s.Deny = model.DenyAll
		}
	}
	return s
}
