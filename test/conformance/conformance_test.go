package conformance

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/test/conformance/install"
)

const (
	top = "../.."
	// usable is an address that the cluster gives only to Services that ask for it, unusable one that it does not have.
	usable, unusable = "10.250.0.127", "10.250.0.200"
)

// TestConformance runs the suite: the whole of the profiles of Gateways, with "-short" a selection, with "-run-test" one test. It takes the
// suite's own flags too. The report of a whole run is the file -report-output.
func TestConformance(t *testing.T) {
	opts := options(t, profiles(), everything())
	opts.UsableNetworkAddresses = []gatewayv1.GatewaySpecAddress{address(usable)}
	opts.UnusableNetworkAddresses = []gatewayv1.GatewaySpecAddress{address(unusable)}
	if testing.Short() {
		opts.SkipTests = append(opts.SkipTests, others(short)...)
	}
	run(t, opts, profiles())
}

// TestMeshConformance runs all tests of meshes, also those that count in no profile, with "-run-test" one of them. Its report is beside the
// other one, with -mesh at the end of its name.
func TestMeshConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("the end-to-end tests show the same of sidecars")
	}
	opts := options(t, meshProfiles(), meshFeatures(tests.ConformanceTests))
	opts.NamespaceLabels = map[string]string{"weirmesh.github.io/inject": "enabled"}
	if opts.ReportOutputPath != "" {
		opts.ReportOutputPath = strings.TrimSuffix(opts.ReportOutputPath, ".yaml") + "-mesh.yaml"
	}
	run(t, opts, meshProfiles())
}

func run(t *testing.T, opts suite.ConformanceOptions, profiles []suite.ConformanceProfile) {
	if opts.RunTest != "" && slices.ContainsFunc(meshTests(tests.ConformanceTests), func(test suite.ConformanceTest) bool { return test.ShortName == opts.RunTest }) != (opts.NamespaceLabels != nil) {
		t.Skipf("%s is none of these tests", opts.RunTest)
	}
	if err := install.Definitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := install.Weir(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	if opts.ReportOutputPath != "" {
		version, err := install.Version(t.Context(), top)
		if err != nil {
			t.Fatal(err)
		}
		opts.Implementation.Organization = "weirmesh"
		opts.Implementation.Project = "weir"
		opts.Implementation.URL = "https://github.com/weirmesh/weir"
		opts.Implementation.Version = version
		opts.Implementation.Contact = []string{"https://github.com/weirmesh/weir/issues"}
	}
	began := time.Now()
	t.Cleanup(func() {
		if opts.ReportOutputPath != "" {
			if err := errors.Join(os.Chmod(opts.ReportOutputPath, 0o644), whole(opts.ReportOutputPath, profiles)); err != nil {
				t.Error(err)
			}
		}
		t.Logf("%s in all", time.Since(began).Round(time.Second))
		if !t.Failed() {
			return
		}
		logs := filepath.Join(top, "bin", "conformance")
		if err := install.Logs(context.Background(), logs); err != nil {
			t.Log(err)
		}
		t.Logf("the logs of Weir are in bin/conformance")
	})
	conformance.RunConformanceWithOptions(t, opts)
}

// options are the suite's defaults and flags, and ours where no flag is given.
func options(t *testing.T, profiles []suite.ConformanceProfile, features suite.FeaturesSet) suite.ConformanceOptions {
	if !install.InCluster() {
		t.Skip("it needs a cluster of its own: \"make conformance\"")
	}
	opts := conformance.DefaultOptions(t)
	given := make(map[string]bool)
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["gateway-class"] {
		opts.GatewayClassName = install.Class
	}
	if !given["supported-features"] {
		opts.SupportedFeatures = features.UnsortedList()
		slices.Sort(opts.SupportedFeatures)
	}
	if !given["conformance-profiles"] {
		for _, p := range profiles {
			opts.ConformanceProfiles = append(opts.ConformanceProfiles, p.Name)
		}
	}
	// A run of a part gives no report, which would say that the rest was skipped.
	if testing.Short() || opts.RunTest != "" {
		opts.ReportOutputPath = ""
	}
	return opts
}

func address(value string) gatewayv1.GatewaySpecAddress {
	kind := gatewayv1.IPAddressType
	return gatewayv1.GatewaySpecAddress{Type: &kind, Value: value}
}

// others are all tests but these.
func others(these []string) []string {
	var names []string
	for _, test := range tests.ConformanceTests {
		if !slices.Contains(these, test.ShortName) {
			names = append(names, test.ShortName)
		}
	}
	return names
}
