package examples_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestASplitNeedsNoRouteAndIsExact(t *testing.T) {
	s := example(t, "split-canary", "website-v1:9001", "website-v2:9002")
	for _, host := range []string{"website", "website:8080", "website.default", "website.default.svc", "website.default.svc.cluster.local", "WEBSITE.default.svc.cluster.local."} {
		got := s.count(100, host, "/")
		if got["website-v1"] != 90 || got["website-v2"] != 10 {
			t.Errorf("100 requests for %s went to %v, want 90 and 10", host, got)
		}
	}
	if a := s.get("website-v2", "/"); a.StatusCode != http.StatusNotFound {
		t.Errorf("a host that is no root: %d, want 404", a.StatusCode)
	}
}

func TestASplitWithMatchesLeavesTheOthersToTheRoot(t *testing.T) {
	s := example(t, "split-ab-test", "website-v1:9001", "website-v2:9002")
	for range 10 {
		s.served(s.get("website", "/", "User-Agent: Mozilla/5.0 Firefox/140.0"), "website-v2")
		s.served(s.get("website", "/", "User-Agent: curl/8"), "website-v1")
	}
}

func TestEachPortOfARootIsSplitToTheBackendsOwnTargets(t *testing.T) {
	s := example(t, "split-birds", "blue-birds:9001", "green-birds:9002")
	for _, port := range []int{8080, 9090} {
		got := map[string]int{}
		for range 10 {
			req, err := http.NewRequest(http.MethodGet, "http://"+s.address(port)+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "birds"
			got[s.send(s.client, req).body]++
		}
		if got["blue-birds"] != 5 || got["green-birds"] != 5 {
			t.Errorf("port %d: 10 requests went to %v, want 5 and 5", port, got)
		}
	}
}

func TestASplitAppliesToWhatARouteLeadsToItsRoot(t *testing.T) {
	s := example(t, "split-route", "website-v1:9001", "website-v2:9002")
	got := s.count(90, "shop.example", "/")
	if got["website-v1"] != 60 || got["website-v2"] != 30 {
		t.Errorf("90 requests went to %v, want 60 and 30", got)
	}
	if a := s.get("website", "/"); a.StatusCode != http.StatusNotFound || strings.HasPrefix(a.body, "website") {
		t.Errorf("the root's host name: %d %q, want 404", a.StatusCode, a.body)
	}
}
