package inject

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/probe"
)

// Verify says what is wrong with a pod as it is about to be stored, after all who may change it: none if it asks for no
// sidecar, may run without, or has the one that was injected. It compares the pod with its record and not with the settings:
// another replica may have injected it, with other settings or of another release.
func (s *Settings) Verify(namespace string, labels map[string]string, pod *corev1.Pod) (problems []string) {
	switch d := s.Ask(namespace, labels, pod); d.Outcome {
	case Refused:
		return d.Reasons
	case Injected:
	default:
		return nil
	}
	record, problem := recordOf(pod)
	switch {
	case problem != "":
		return []string{problem}
	case record == nil:
		return []string{fmt.Sprintf("annotation %s: the pod asks for a sidecar and has none. The MutatingWebhookConfiguration that injects it is missing or was not asked, or another webhook removed it; "+
			"see \"weir check\"", Annotation)}
	}
	o, problems := s.options(pod)
	if len(problems) > 0 {
		return problems
	}
	problems = unfit(&o.plan, pod, true)
	for i, want := range []string{RedirectName, SidecarName} {
		at := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == want })
		field := fmt.Sprintf("spec.initContainers[%s]", want)
		if at < 0 {
			problems = append(problems, field+": it was injected and is not there any more: another webhook removed it"+settle)
			continue
		}
		if at != i {
			before := pod.Spec.InitContainers[at-1].Name
			problems = append(problems, fmt.Sprintf("%s: container %s is before it, whose connections would go around the sidecar: another webhook put it there%s", field, before, settle))
		}
		problems = append(problems, s.changed(field, &pod.Spec.InitContainers[at], int64(o.plan.User), record)...)
	}
	for _, name := range volumeNames {
		if _, had := record.Parts[name]; !had && record.Version != s.Version {
			continue // a replica of another release injected it, which has no such volume
		}
		field := fmt.Sprintf("spec.volumes[%s]", name)
		at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		if at < 0 {
			problems = append(problems, field+": it was injected and is not there any more: another webhook removed it"+settle)
		} else if record.Version == s.Version && digest(&pod.Spec.Volumes[at]) != record.Parts[name] {
			problems = append(problems, field+": it is not as it was injected: another webhook changed it"+settle)
		}
	}
	return append(problems, unprobed(pod, record)...)
}

// settle is what to do about another webhook.
const settle = "; have it leave out pods with the label " + Label + ", or give the pod the label " + Label + "=" + Disabled + " to run without a sidecar"

// changed says what of a container of the sidecar's is not as it was injected.
func (s *Settings) changed(field string, c *corev1.Container, user int64, record *Record) (out []string) {
	add := func(name, is, want string) {
		out = append(out, fmt.Sprintf("%s.%s: is %s, and has to be %s: another webhook changed it%s", field, name, is, want, settle))
	}
	if c.Image != record.Image {
		add("image", fmt.Sprintf("%q", c.Image), fmt.Sprintf("%q (proxyImage.name of the chart)", record.Image))
	}
	redirects := c.Name == RedirectName
	if redirects {
		user = 0
	}
	if !redirects && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
		out = append(out, field+".restartPolicy: is not Always: either another webhook changed it, or the API server does not know native sidecars, which Kubernetes has from 1.33 on")
	}
	security := c.SecurityContext
	if security == nil {
		add("securityContext", "missing", "as it was injected")
		return out
	}
	if security.RunAsUser == nil || *security.RunAsUser != user {
		add("securityContext.runAsUser", text(security.RunAsUser), fmt.Sprint(user))
	}
	have, want := capabilities(security.Capabilities), "none"
	if redirects {
		want = "NET_ADMIN alone"
	}
	if have != want {
		add("securityContext.capabilities", have, want)
	}
	// Another release may count other fields among those that nobody may change.
	if len(out) == 0 && record.Version == s.Version && digest(core(c)) != record.Parts[c.Name] {
		out = append(out, field+": its arguments, WEIR_ variables, mounts below "+mounts+", probes, hooks or securityContext are not as they were injected: another webhook changed them"+settle)
	}
	return out
}

func text(n *int64) string {
	if n == nil {
		return "missing"
	}
	return fmt.Sprint(*n)
}

func capabilities(c *corev1.Capabilities) string {
	switch {
	case c == nil || !slices.Equal(c.Drop, []corev1.Capability{"ALL"}):
		return "those of the container runtime"
	case len(c.Add) == 0:
		return "none"
	case slices.Equal(c.Add, []corev1.Capability{"NET_ADMIN"}):
		return "NET_ADMIN alone"
	}
	return fmt.Sprint(c.Add)
}

// unprobed says which probes and hooks do not ask the sidecar.
func unprobed(pod *corev1.Pod, record *Record) (out []string) {
	table := Probes(pod.Spec.DeepCopy(), SidecarName, ProbePort, nil, record.Probes.Secret())
	for _, key := range slices.Sorted(maps.Keys(table)) {
		_, known := record.Probes[key]
		if get := table[key].HTTP; !known || get == nil || get.Port != ProbePort || get.Path != "/"+key {
			out = append(out, fmt.Sprintf("probe or hook %s: it does not ask the sidecar, for which the kubelet is a stranger: another webhook changed it after Weir's%s", probe.Name(key), settle))
		}
	}
	return out
}

// essence is what of a container counts: no one else may change it. Resources, the pull policy and what else others add
// are not in it.
type essence struct {
	Image                         string
	Command, Args                 []string
	Env                           []corev1.EnvVar
	EnvFrom                       []corev1.EnvFromSource
	RestartPolicy                 *corev1.ContainerRestartPolicy
	User, Group                   *int64
	NonRoot, Escalation, ReadOnly *bool
	Privileged                    bool
	Capabilities                  string
	Mounts                        []corev1.VolumeMount
	Startup                       *corev1.HTTPGetAction
	Probes, Hooks                 bool
}

func core(c *corev1.Container) *essence {
	e := &essence{Image: c.Image, Command: c.Command, Args: c.Args, EnvFrom: c.EnvFrom, RestartPolicy: c.RestartPolicy, Probes: c.LivenessProbe != nil || c.ReadinessProbe != nil}
	e.Hooks = c.Lifecycle != nil && (c.Lifecycle.PostStart != nil || c.Lifecycle.PreStop != nil)
	for _, v := range c.Env {
		if strings.HasPrefix(v.Name, variablePrefix) {
			e.Env = append(e.Env, v)
		}
	}
	for _, m := range c.VolumeMounts {
		if overlaps(m.MountPath) {
			e.Mounts = append(e.Mounts, corev1.VolumeMount{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly, SubPath: m.SubPath, SubPathExpr: m.SubPathExpr})
		}
	}
	if c.StartupProbe != nil {
		e.Startup = c.StartupProbe.HTTPGet
	}
	if s := c.SecurityContext; s != nil {
		e.User, e.Group, e.NonRoot, e.Escalation, e.ReadOnly = s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot, s.AllowPrivilegeEscalation, s.ReadOnlyRootFilesystem
		e.Privileged, e.Capabilities = s.Privileged != nil && *s.Privileged, capabilities(s.Capabilities)
	}
	return e
}

// variablePrefix begins the variables that the sidecar's flags may have.
const variablePrefix = "WEIR_"

// overlaps reports whether a mount at a path has, or hides, what the sidecar's own mounts have.
func overlaps(at string) bool {
	at = path.Clean(at)
	return at == mounts || strings.HasPrefix(at, mounts+"/") || strings.HasPrefix(mounts, strings.TrimSuffix(at, "/")+"/")
}

// digest is that of a value's JSON.
func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of text and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
