// Package tlsconfig is the TLSConfig of SMI's first draft, section "Mutual TLS". The draft writes it without an API group,
// and its name outside of metadata. No later version of the specification has it.
//
// It holds what a user wrote; internal/dialect/tlsconfig interprets it.
package tlsconfig

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Group is the API group, formed as those of SMI's other kinds.
const Group = "tls.smi-spec.io"

// Draft is the version of the first draft, the only one.
const Draft = "v1beta1"

// PermissiveAnnotation, when it is "true", has the pods serve clients in plain text for the time of a migration.
const PermissiveAnnotation = "weirmesh.github.io/permissive"

// TLSConfig asks for mutual TLS in front of the pods of its namespace that it selects.
type TLSConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec"`
	// Status is as it was read, whoever wrote it. Files have none.
	Status map[string]any `json:"status,omitempty"`
}

// Spec is the spec of a TLSConfig.
type Spec struct {
	// SubjectNames are the DNS names that the pods' certificates are to have, in lower case and without a last dot.
	SubjectNames []string `json:"subjectNames,omitempty"`
	// Selector selects pods by their labels. It has matchLabels or matchExpressions, which may be empty and then select all.
	Selector metav1.LabelSelector `json:"selector"`
}
