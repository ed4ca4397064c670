package conformance

import (
	"slices"

	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// profiles that Weir claims, whole.
func profiles() []suite.ConformanceProfile {
	return []suite.ConformanceProfile{suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile, suite.GatewayTCPConformanceProfile}
}

// meshProfiles are those of meshes, whole too.
func meshProfiles() []suite.ConformanceProfile {
	return []suite.ConformanceProfile{suite.MeshHTTPConformanceProfile, suite.MeshGRPCConformanceProfile}
}

// meshTests are the tests of meshes. Some need features that no profile of meshes has, so that no profile counts them.
func meshTests(all []suite.ConformanceTest) (of []suite.ConformanceTest) {
	for _, test := range all {
		if slices.Contains(test.Features, features.SupportMesh) {
			of = append(of, test)
		}
	}
	return of
}

// meshFeatures are all that they need.
func meshFeatures(all []suite.ConformanceTest) suite.FeaturesSet {
	needed := make(suite.FeaturesSet)
	for _, test := range meshTests(all) {
		needed.Insert(test.Features...)
	}
	for _, p := range meshProfiles() {
		needed = needed.Union(p.CoreFeatures).Union(p.ExtendedFeatures)
	}
	return needed
}

// everything is each feature of the profiles, extended ones too: what is tested does not depend on what Weir says it supports.
func everything() suite.FeaturesSet {
	all := make(suite.FeaturesSet)
	for _, p := range profiles() {
		all = all.Union(p.CoreFeatures).Union(p.ExtendedFeatures)
	}
	return all
}

// extended says whether a test of a profile needs an extended feature of it.
func extended(p suite.ConformanceProfile, all []suite.ConformanceTest) bool {
	of := testsOf(p, all)
	return slices.ContainsFunc(all, func(test suite.ConformanceTest) bool {
		return slices.Contains(of, test.ShortName) && p.ExtendedFeatures.HasAny(test.Features...)
	})
}

// testsOf are the names of a profile's tests: those that need nothing but its features, of which at least one is no extended one.
func testsOf(p suite.ConformanceProfile, all []suite.ConformanceTest) []string {
	var names []string
	supported := p.CoreFeatures.Union(p.ExtendedFeatures)
	for _, test := range all {
		if supported.HasAll(test.Features...) {
			names = append(names, test.ShortName)
		}
	}
	return names
}
