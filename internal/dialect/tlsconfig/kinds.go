package tlsconfig

import (
	"maps"

	"github.com/weirmesh/weir/api/tlsconfig"
	"github.com/weirmesh/weir/deploy/crds"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Configs is where a Set has the objects.
var Configs = resource.NewList[*tlsconfig.TLSConfig]()

// Kinds returns the kinds that are read.
func Kinds() resource.Kinds { return kinds[:len(kinds):len(kinds)] }

const kindName = "TLSConfig"

var kinds = resource.Kinds{{
	Group: tlsconfig.Group, Name: kindName, Plural: "tlsconfigs", Versions: []string{tlsconfig.Draft},
	API: "SMI", Domain: "smi-spec.io", Bundled: true,
	Definition: resource.Definition{Files: crds.Files, Name: tlsconfig.Group + "_tlsconfigs.yaml"},
	Decoder:    resource.Typed[tlsconfig.TLSConfig](), Objects: Configs, Complete: complete, Elsewhere: map[string]string{"name": "metadata.name"},
	Status: &resource.StatusForm{Types: []string{condAccepted, condNames, condInjected}, Conditions: true, Generation: true},
	Needs:  workload.Kinds(), Missing: resource.Info, Without: "there are no TLSConfigs of SMI",
	Effects: map[string]string{
		"subjectNames": "the certificates have no further names", "selector.matchLabels": "pods are selected by matchExpressions alone",
		"selector.matchExpressions": "pods are selected by matchLabels alone", "matchExpressions.values": "the label's value does not matter",
	},
	Table: "TLSCONFIG",
	Columns: append([]resource.Column{
		resource.ColumnOf("NAMES", func(c *tlsconfig.TLSConfig) []string { return c.Spec.SubjectNames }),
	}, resource.Columns("ACCEPTED")...),
	About: "mutual TLS of the pods that it selects ([mesh](mesh.md#tlsconfig)). The first draft's form, also without a group and with its name outside of metadata",
}}

// complete recognises the draft's form, which has no group. Its name, which stands outside of metadata, is read from there
// unless metadata has one; the field stays, and is reported as one that is unknown.
func complete(apiVersion, kind string, u map[string]any) (full string, ok bool) {
	if kind != kindName || apiVersion != tlsconfig.Draft && apiVersion != "" {
		return "", false
	}
	name, ok := u["name"].(string)
	if u["metadata"] == nil && ok {
		u["metadata"] = map[string]any{}
	}
	if metadata, is := u["metadata"].(map[string]any); is && ok && metadata["name"] == nil {
		metadata["name"] = name
	}
	return tlsconfig.Group + "/" + tlsconfig.Draft, true
}

// Manifest returns a manifest's TLSConfig as an API server would have it, whichever form it is written in; nil if the object is
// none.
func Manifest(u map[string]any) map[string]any {
	version, _ := u["apiVersion"].(string)
	kind, _ := u["kind"].(string)
	full := tlsconfig.Group + "/" + tlsconfig.Draft
	if kind != kindName || version != full && version != tlsconfig.Draft && version != "" {
		return nil
	}
	u = maps.Clone(u)
	if metadata, ok := u["metadata"].(map[string]any); ok {
		u["metadata"] = maps.Clone(metadata)
	}
	complete(version, kind, u)
	u["apiVersion"] = full
	return u
}
