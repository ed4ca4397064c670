package infra

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// user is the user of Weir's image.
	user = 65532
	// tokenSeconds is how long a token is valid; the kubelet writes another in time.
	tokenSeconds = 3600
	// endMargin is the time that a pod has after its drain before it is killed.
	endMargin = 5 * time.Second
)

// stateSize bounds the last good configuration that a proxy keeps.
var stateSize = resource.MustParse("64Mi")

// defaultResources are a proxy's requests unless parameters set others. There are no limits: the proxy bounds itself.
func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
	}}
}

// pod returns a pod that the Pod Security Standard "restricted" admits. It does not name the listeners' ports, so that
// a change of listeners restarts nothing.
func (r *renderer) pod() corev1.PodSpec {
	delay, timeout := r.p.Drain.delay(), r.p.Drain.timeout()
	grace := int64((delay + timeout + endMargin + time.Second - 1) / time.Second)
	no, yes := false, true
	var id int64 = user
	return corev1.PodSpec{
		ServiceAccountName:           r.name,
		AutomountServiceAccountToken: &no,
		EnableServiceLinks:           &no,
		ImagePullSecrets:             cmpSlice(r.p.ImagePullSecrets, r.ImagePullSecrets),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			// Listeners have the ports that users chose, including ports below 1024.
			Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
		},
		TerminationGracePeriodSeconds: &grace,
		NodeSelector:                  r.p.NodeSelector,
		Tolerations:                   r.p.Tolerations,
		PriorityClassName:             r.p.PriorityClassName,
		Affinity:                      r.affinity(),
		TopologySpreadConstraints:     r.spread(),
		Containers:                    []corev1.Container{r.container(delay, timeout)},
		Volumes:                       r.volumes(),
	}
}

func cmpSlice[T any](first, otherwise []T) []T {
	if len(first) > 0 {
		return first
	}
	return otherwise
}

func (r *renderer) container(delay, timeout time.Duration) corev1.Container {
	resources := defaultResources()
	if r.p.Resources != nil {
		resources = *r.p.Resources
	}
	no, yes := false, true
	return corev1.Container{
		Name:            "proxy",
		Image:           cmp.Or(r.p.Image, r.Image),
		ImagePullPolicy: cmp.Or(r.p.ImagePullPolicy, r.ImagePullPolicy),
		Args:            r.args(delay, timeout),
		Env:             r.env(),
		Ports:           []corev1.ContainerPort{{Name: "admin", ContainerPort: AdminPort, Protocol: corev1.ProtocolTCP}},
		Resources:       resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		// A proxy is ready after its first configuration. Only a proxy that has not answered for a minute is not alive:
		// a slow one serves more requests than a restarted one.
		// It is asked every second, so that a successor gets traffic before an ending pod stops taking it.
		ReadinessProbe: probe("/readyz", 1, 6, 2),
		LivenessProbe:  probe("/healthz", 10, 6, 5),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "ca", MountPath: caFolder, ReadOnly: true},
			{Name: "token", MountPath: tokenFolder, ReadOnly: true},
			{Name: "state", MountPath: stateFolder},
		},
	}
}

func probe(path string, period, failures, timeout int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString("admin"), Scheme: corev1.URISchemeHTTP,
		}},
		PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: timeout,
	}
}

func (r *renderer) args(delay, timeout time.Duration) []string {
	args := []string{
		"proxy",
		"--gateway=" + r.gateway.Namespace + "/" + r.gateway.Name,
		"--controller=" + r.Controller,
		"--ca-file=" + caFolder + "/" + CAKey,
		"--token-file=" + tokenFolder + "/token",
		"--state-dir=" + stateFolder,
		"--drain-delay=" + delay.String(),
		"--drain-timeout=" + timeout.String(),
		"--reach=cluster", // overrides the environment
	}
	for _, flag := range []struct{ name, value string }{
		{"log-level", cmp.Or(r.p.LogLevel, r.LogLevel)},
		{"log-format", cmp.Or(r.p.LogFormat, r.LogFormat)},
		{"access-log", r.p.AccessLog},
	} {
		if flag.value != "" {
			args = append(args, "--"+flag.name+"="+flag.value)
		}
	}
	return slices.Concat(args, r.p.AccessLogOptions.args(), r.p.RequestID.args(), r.p.Tracing.args())
}

func (r *renderer) env() []corev1.EnvVar {
	var env []corev1.EnvVar
	const viaName = "WEIR_VIA_NAME"
	if _, own := r.p.Env[viaName]; !own && r.gateway.UID != "" {
		// One name for all pods of the Gateway and, as clusters may have Gateways of one name, for no others: a loop ends at whichever pod comes next.
		// A variable and no argument: another image may not know it.
		sum := sha256.Sum256([]byte("weir via " + string(r.gateway.UID)))
		env = append(env, corev1.EnvVar{Name: viaName, Value: "weir-" + hex.EncodeToString(sum[:6])})
	}
	const trustDomain = "WEIR_TRUST_DOMAIN"
	if _, own := r.p.Env[trustDomain]; !own && r.TrustDomain != "" {
		env = append(env, corev1.EnvVar{Name: trustDomain, Value: r.TrustDomain})
	}
	// Where the proxy observes its traffic, and where it runs; variables for the same reason. Kubernetes 1.35 puts the zone into
	// pods' labels.
	for _, pod := range []struct{ name, field string }{
		{"WEIR_POD_NAME", "metadata.name"}, {"WEIR_POD_NAMESPACE", "metadata.namespace"},
		{"WEIR_NODE", "spec.nodeName"}, {"WEIR_ZONE", "metadata.labels['" + corev1.LabelTopologyZone + "']"},
	} {
		if _, own := r.p.Env[pod.name]; !own {
			env = append(env, corev1.EnvVar{Name: pod.name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: pod.field}}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.p.Env)) {
		env = append(env, corev1.EnvVar{Name: name, Value: r.p.Env[name]})
	}
	return env
}

func (r *renderer) volumes() []corev1.Volume {
	seconds, mode := int64(tokenSeconds), int32(0o440)
	return []corev1.Volume{
		{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: r.name},
		}}},
		{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: &mode,
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: Audience, ExpirationSeconds: &seconds, Path: "token",
			}}},
		}}},
		// In memory: it holds the keys of certificates.
		{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: &stateSize,
		}}},
	}
}

// affinity asks for pods of a Gateway on different nodes, where there are enough.
func (r *renderer) affinity() *corev1.Affinity {
	if r.p.Affinity != nil {
		return r.p.Affinity
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: r.selector}, TopologyKey: corev1.LabelHostname,
			},
		}},
	}}
}

// spread is over zones, then nodes, of the pods of one version, so that pods that a rolling update removes do not
// count.
func (r *renderer) spread() []corev1.TopologySpreadConstraint {
	if r.p.TopologySpreadConstraints != nil {
		out := slices.Clone(r.p.TopologySpreadConstraints)
		for i := range out {
			if out[i].LabelSelector == nil {
				out[i].LabelSelector = &metav1.LabelSelector{MatchLabels: r.selector}
			}
		}
		return out
	}
	var out []corev1.TopologySpreadConstraint
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		out = append(out, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: r.selector}, MatchLabelKeys: []string{"pod-template-hash"},
		})
	}
	return out
}
