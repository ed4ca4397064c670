package inspect

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/resource"
)

// Names returns which host names the controller lets backends have, by its Deployment's flags; an empty namespace means
// wherever it runs. A controller that may not be read is taken to allow everything it can, so that nothing correct is
// reported.
func Names(ctx context.Context, c client.Client, namespace string) *resource.HostNames {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(namespace), controllerLabels); err != nil {
		return &resource.HostNames{Suffixes: []string{"*"}}
	}
	if len(list.Items) == 0 {
		return &resource.HostNames{}
	}
	return namesOf(&list.Items[0])
}

func namesOf(d *appsv1.Deployment) *resource.HostNames {
	out := &resource.HostNames{}
	for _, container := range d.Spec.Template.Spec.Containers {
		flag := func(name string) string {
			value := environment(container.Env, "WEIR_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
			for _, arg := range container.Args { // they go first
				if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
					value = v
				}
			}
			return value
		}
		if suffixes := flag("external-names"); suffixes != "" {
			out.Suffixes = strings.Split(suffixes, ",")
		}
		if domain := flag("cluster-domain"); domain != "" {
			out.ClusterDomain = domain
		}
	}
	return out
}

func environment(all []corev1.EnvVar, name string) string {
	for _, e := range all {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}
