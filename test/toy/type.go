package toy

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Group is the API group.
const Group = "toys.weirmesh.test"

// Toy sends the requests for a host to a Service.
type Toy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitzero"`
}

// Spec is what a Toy asks for.
type Spec struct {
	// Host is a host name, or empty for any.
	Host string `json:"host,omitempty"`
	// Port to listen on.
	Port    int32  `json:"port"`
	Service Target `json:"service"`
	// Path, if set, is the ConfigMap of the Toy's namespace whose key "path" says below which path requests are served.
	Path string `json:"path,omitempty"`
}

// Target is a port of a Service of the Toy's namespace.
type Target struct {
	Name string `json:"name"`
	Port int32  `json:"port"`
}

// Status is what became of it.
type Status struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
