package conformance

import (
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// profiles that Weir claims, whole.
func profiles() []suite.ConformanceProfile {
	return []suite.ConformanceProfile{suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile, suite.GatewayTCPConformanceProfile}
}

// everything is each feature of the profiles, extended ones too: what is tested does not depend on what Weir says it supports.
func everything() suite.FeaturesSet {
	all := make(suite.FeaturesSet)
	for _, p := range profiles() {
		all = all.Union(p.CoreFeatures).Union(p.ExtendedFeatures)
	}
	return all
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
