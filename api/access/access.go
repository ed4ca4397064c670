// Package access is SMI's access control (access.smi-spec.io). It has two families of kinds: TrafficRole and its
// relatives, which the first draft of the specification has (April 2019), and TrafficTarget with IdentityBinding, which
// were released. There is one Go type for each kind, into which every version is decoded, and the conversion of objects
// between versions.
//
// All of it only ever allows. So a part of an object that cannot be understood is an error of the object, never ignored:
// without it, the object could allow more than its author wrote. That includes unknown fields and null.
//
// It holds what a user wrote; internal/dialect/access interprets it.
package access

import "github.com/weirmesh/weir/api/convert"

// Group is the API group. The first draft writes its one version, v1beta1, without a group.
const Group = "access.smi-spec.io"

// Versions of the kinds, the newest first.
var (
	// RoleVersions are those of TrafficRole, TrafficRoleBinding, ClusterTrafficRole and ClusterTrafficRoleBinding.
	RoleVersions = []string{Draft}
	// TargetVersions are those of TrafficTarget. "v1alpha1" has no spec and calls the rules specs; "v1alpha1" and "v1alpha2"
	// have a port; only "v1alpha4" has IdentityBindings.
	TargetVersions = []string{"v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"}
	// IdentityVersions are those of IdentityBinding.
	IdentityVersions = []string{"v1alpha4"}
)

// Draft is the version of the first draft.
const Draft = "v1beta1"

// Any means every object, kind, namespace, method or path, as a value of the field that says so.
const Any = "*"

// Bounds of lists and texts. Those of paths and names count characters, as a schema does.
const (
	MaxRules      = 256
	MaxResources  = 256
	MaxMethods    = 64
	MaxMethod     = 32
	MaxPaths      = 256
	MaxPath       = 1024
	MaxSubjects   = 256
	MaxSources    = 256
	MaxMatches    = 256
	MaxSelectors  = 64
	MaxIdentities = 256
	MaxIdentity   = 2048
	maxName       = 253
	maxNamespace  = 63
)

// Kinds are the kinds of the group with several versions, with their conversions.
func Kinds() []convert.Kind { return []convert.Kind{trafficTarget} }
