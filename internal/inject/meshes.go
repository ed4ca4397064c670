package inject

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mesh is another one, and how a pod is left out of it.
type mesh struct{ name, out string }

var (
	istio   = mesh{"Istio", `the label sidecar.istio.io/inject: "false"`}
	linkerd = mesh{"Linkerd", "the annotation linkerd.io/inject: disabled"}
	osm     = mesh{"Open Service Mesh", "the annotation openservicemesh.io/sidecar-injection: disabled"}
)

// meshes are those whose containers have these names. Any of them means that the pod's connections are redirected to it.
var meshes = map[string]mesh{
	"istio-init": istio, "istio-proxy": istio, "istio-validation": istio,
	"linkerd-init": linkerd, "linkerd-network-validator": linkerd, "linkerd-proxy": linkerd,
	"osm-init": osm, // its proxy is called envoy, as others may be
}

// ambient is the label of pods and namespaces whose connections a node's agent of Istio redirects, without any container.
const ambient = "istio.io/dataplane-mode"

// otherMesh says that another mesh redirects the pod's connections, too: then neither carries what it should. One
// container of it is told, which is enough to leave the pod out of it.
func otherMesh(pod *corev1.Pod) (out []string) {
	add := func(field, mesh, leave string) {
		out = append(out, fmt.Sprintf("%s: the pod is in the mesh of %s, and one mesh alone can have its connections; leave it out of that by %s, or out of Weir's by the label %s: %s",
			field, mesh, leave, Label, Disabled))
	}
	told := map[mesh]bool{}
	each(&pod.Spec, func(kind string, c *corev1.Container) {
		if m, ok := meshes[c.Name]; ok && !told[m] {
			told[m] = true
			add(fmt.Sprintf("spec.%s[%s]", kind, c.Name), m.name, m.out)
		}
	})
	if pod.Labels[ambient] == "ambient" {
		add("label "+ambient, istio.name, "removing it")
	}
	return out
}

// asksMesh are the labels and annotations of namespaces by which other meshes have their pods, with the values that ask.
var asksMesh = map[string]struct {
	mesh   mesh
	values []string // none is any
}{
	"istio-injection": {istio, []string{Enabled}}, "istio.io/rev": {istio, nil}, ambient: {istio, []string{"ambient"}},
	"linkerd.io/inject":                    {linkerd, []string{Enabled, "ingress"}},
	"openservicemesh.io/sidecar-injection": {osm, []string{Enabled, "yes", "true"}},
}

// MeshOf returns by which field of its metadata a namespace is in another mesh, and in whose; both are empty if it is in none.
func MeshOf(namespace *corev1.Namespace) (field, mesh string) {
	for _, of := range []struct {
		name string
		all  map[string]string
	}{{"labels", namespace.Labels}, {"annotations", namespace.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(of.all)) {
			if ask, ok := asksMesh[key]; ok && (ask.values == nil && of.all[key] != "" || slices.Contains(ask.values, of.all[key])) {
				return fmt.Sprintf("metadata.%s[%s]", of.name, key), ask.mesh.name
			}
		}
	}
	return "", ""
}
