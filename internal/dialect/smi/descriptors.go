package smi

import (
	"github.com/weirmesh/weir/api/convert"
	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/deploy/crds"
	"github.com/weirmesh/weir/internal/resource"
)

// Kinds returns the kinds of SMI that Weir reads.
func Kinds() resource.Kinds { return kinds[:len(kinds):len(kinds)] }

var kinds = resource.Kinds{
	kind(&resource.Kind{
		Group: split.Group, Name: "TrafficSplit", Plural: "trafficsplits", Versions: split.Versions,
		Decoder: resource.Versioned(split.Decode, earlyMatches), Complete: completeSplit, Instead: map[string]string{split.Draft: "v1alpha1"},
		Objects: resource.ListIn(func(s *resource.Set) *[]*split.TrafficSplit { return &s.TrafficSplits }),
		Status:  &resource.StatusForm{Types: []string{"Accepted", "ResolvedRefs", "PortsMatched", "Conflicted"}, Conditions: true, Generation: true},
		Table:   "TRAFFICSPLIT", Columns: resource.Columns("ROOT", "LEAVES", "MATCHES", "ACCEPTED", "RESOLVED"),
		About: "all of it. In v1alpha1 and in the first draft's v1beta1 weights are quantities, quoted or not; the draft is read without a group, too",
	}, split.Kinds()),
	kind(&resource.Kind{
		Group: specs.Group, Name: "HTTPRouteGroup", Plural: "httproutegroups", Versions: specs.Versions,
		Decoder: resource.Versioned(specs.DecodeHTTPRouteGroup, nil), Complete: completeGroup,
		Objects: resource.ListIn(func(s *resource.Set) *[]*specs.HTTPRouteGroup { return &s.HTTPRouteGroups }),
		About:   "all of it; headers as a list of objects or as one object",
	}, specs.Kinds()),
	kind(&resource.Kind{
		Group: specs.Group, Name: "TCPRoute", Plural: "tcproutes", Versions: specs.Versions, Common: true,
		Decoder: resource.Versioned(specs.DecodeTCPRoute, nil),
		Objects: resource.ListIn(func(s *resource.Set) *[]*specs.TCPRoute { return &s.TCPPorts }),
		About:   "all of it, by the TrafficTargets that name it ([access](access.md))",
	}, specs.Kinds()),
	kind(&resource.Kind{
		Group: specs.Group, Name: "UDPRoute", Plural: "udproutes", Versions: specs.Versions[:1], Common: true,
		Decoder: resource.Versioned(specs.DecodeUDPRoute, nil),
		Objects: resource.ListIn(func(s *resource.Set) *[]*specs.UDPRoute { return &s.UDPPorts }),
		About:   "all of it, by the TrafficTargets that name it ([access](access.md))",
	}, specs.Kinds()),
}

// kind adds what all kinds have in common, and how their versions are converted.
func kind(k *resource.Kind, conversions []convert.Kind) *resource.Kind {
	k.API, k.Domain, k.Bundled = "SMI", "smi-spec.io", true
	k.Definition = resource.Definition{Files: crds.Files, Name: k.Group + "_" + k.Plural + ".yaml"}
	k.Missing, k.Without = resource.Info, "there are no "+k.Name+"s of SMI"
	k.Effects = resource.FieldEffects
	for _, c := range conversions {
		if c.Name == k.Name {
			k.Conversion = &c
		}
	}
	return k
}

// earlyMatches reports matches in a version without them.
func earlyMatches(version string, u map[string]any) []resource.Finding {
	spec, _ := u["spec"].(map[string]any)
	if version != "v1alpha2" || spec["matches"] == nil {
		return nil
	}
	return []resource.Finding{resource.NewFinding(resource.CodeMatchesEarly, "spec.matches",
		"v1alpha2 has no matches: they are applied here, but other readers of that version split all requests")}
}

// completeSplit returns the apiVersion that a TrafficSplit would have in a cluster. The specification's own examples
// omit it, or omit its group. The first draft once calls a TrafficSplit a Canary.
func completeSplit(apiVersion, kind string, _ map[string]any) (full string, ok bool) {
	switch {
	case kind == "TrafficSplit" && apiVersion == "":
		return split.Group + "/" + split.Versions[0], true
	case (kind == "TrafficSplit" || kind == "Canary") && apiVersion == split.Draft:
		return split.Group + "/" + split.Draft, true
	}
	return "", false
}

// completeGroup does the same for HTTPRouteGroups. Groups without spec belong to an older version.
func completeGroup(apiVersion, kind string, u map[string]any) (full string, ok bool) {
	switch {
	case kind != "HTTPRouteGroup" || apiVersion != "":
		return "", false
	case u["spec"] == nil && u["matches"] != nil:
		return specs.Group + "/v1alpha2", true
	}
	return specs.Group + "/" + specs.Versions[0], true
}
