package inject

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/internal/probe"
)

// The names of what a pod gets.
const (
	// RedirectName and SidecarName are its first two init containers, in this order.
	RedirectName = "weir-redirect"
	SidecarName  = "weir-sidecar"
	// CAName is the ConfigMap with the authority of the feed, in the pod's namespace, and the volume of it; CAKey is its key.
	CAName = "weir-ca"
	CAKey  = "ca.crt"
	// tokenName is the volume of the sidecar's token, stateName the one in which it keeps what it needs when it is started again.
	tokenName = "weir-token"
	stateName = "weir-state"
)

// volumeNames are the volumes that a pod gets.
var volumeNames = []string{CAName, tokenName, stateName}

// The sidecar's ports for HTTP, which are not redirected: where it is asked by the kubelet, and its admin endpoint.
const (
	ProbePort = 15020
	AdminPort = 15021
)

const (
	mounts      = "/var/run/weir"
	caFolder    = mounts + "/ca"
	tokenFolder = mounts + "/token"
	stateFolder = mounts + "/state"
	// stateSize is in memory, and twice what the largest state may have: it is written beside the one before.
	stateSize = "16Mi"
	// tokenSeconds is how long a token is good; the kubelet writes another in time.
	tokenSeconds = 3600
	// startFailures is how many seconds the sidecar may take to begin. It waits for the controller itself, and is not to be
	// ended meanwhile: of a pod that never restarts, that may be the end.
	startFailures = 24 * 3600
	// probesVariable has the table of the pod's probes.
	probesVariable = "WEIR_PROBES"
)

// parts are the containers and volumes that a pod gets. What the API server would fill in is filled in where it is
// compared later.
type parts struct {
	redirect, sidecar corev1.Container
	volumes           []corev1.Volume
}

func (s *Settings) parts(o *options, table probe.Table, resources corev1.ResourceRequirements) (*parts, error) {
	env, err := variables(table)
	if err != nil {
		return nil, err
	}
	state := resource.MustParse(stateSize)
	mode, seconds := int32(0o644), int64(tokenSeconds) // the mode of all files: the sidecar's user is none that Kubernetes would make their owner
	return &parts{
		redirect: s.container(RedirectName, append([]string{"redirect"}, o.plan.Args()...), 0, resources),
		sidecar:  s.sidecar(o, env, resources),
		volumes: []corev1.Volume{
			{Name: CAName, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: CAName}, Items: []corev1.KeyToPath{{Key: CAKey, Path: CAKey}}, DefaultMode: &mode,
			}}},
			{Name: tokenName, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: s.Audience, ExpirationSeconds: &seconds, Path: "token"},
			}}}}},
			{Name: stateName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &state}}},
		},
	}, nil
}

// container is one that runs as a user: as root with the one capability that the redirect takes, as others with none.
func (s *Settings) container(name string, args []string, user int64, resources corev1.ResourceRequirements) corev1.Container {
	no, yes, nonRoot := false, true, user != 0
	capabilities := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if user == 0 {
		capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	}
	return corev1.Container{
		Name: name, Image: s.Image, ImagePullPolicy: s.PullPolicy, Args: args, Resources: *resources.DeepCopy(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &nonRoot, AllowPrivilegeEscalation: &no, Privileged: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: capabilities, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

func (s *Settings) sidecar(o *options, env []corev1.EnvVar, resources corev1.ResourceRequirements) corev1.Container {
	args := []string{"sidecar", "--controller=" + s.Controller}
	for _, f := range []struct{ name, value string }{{"trust-domain", s.TrustDomain}, {"log-level", s.LogLevel}, {"log-format", s.LogFormat}} {
		if f.value != "" {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	args = append(args, "--inbound-ports="+o.plan.Inbound.String(), "--outbound-ports="+o.plan.Outbound.String(),
		fmt.Sprintf("--probe-port=%d", ProbePort), fmt.Sprintf("--admin=:%d", AdminPort), "--state-dir="+stateFolder)
	if !o.strict {
		args = append(args, "--permissive")
	}
	args = append(args, o.accessLog.args()...)
	c := s.container(SidecarName, args, int64(o.plan.User), resources)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy, c.Env = &always, env
	c.Ports = []corev1.ContainerPort{{Name: "weir-admin", ContainerPort: AdminPort, Protocol: corev1.ProtocolTCP}}
	c.StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(AdminPort), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: 1, TimeoutSeconds: 2, FailureThreshold: startFailures,
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: CAName, MountPath: caFolder, ReadOnly: true}, {Name: tokenName, MountPath: tokenFolder, ReadOnly: true},
		{Name: stateName, MountPath: stateFolder}}
	return c
}

// variables say whose sidecar it is, where it runs, and what it is to ask the pod's containers in the kubelet's place. Kubernetes
// 1.35 puts the zone into pods' labels.
func variables(table probe.Table) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	for _, v := range []struct{ name, field string }{
		{"WEIR_POD_NAMESPACE", "metadata.namespace"}, {"WEIR_POD_NAME", "metadata.name"}, {"WEIR_POD_IPS", "status.podIPs"},
		{"WEIR_NODE", "spec.nodeName"}, {"WEIR_ZONE", "metadata.labels['" + corev1.LabelTopologyZone + "']"},
	} {
		env = append(env, corev1.EnvVar{Name: v.name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: v.field}}})
	}
	if len(table) == 0 {
		return env, nil
	}
	text, err := json.Marshal(table)
	if err != nil {
		return nil, err
	}
	if _, err := probe.Parse(text); err != nil { // as the sidecar will read it
		return nil, err
	}
	// $(NAME) in a variable's value would be replaced by the kubelet; outside of strings JSON has no $.
	return append(env, corev1.EnvVar{Name: probesVariable, Value: strings.ReplaceAll(string(text), "$", `\u0024`)}), nil
}
