package rest

import (
	"net/http"
	"strings"
	"testing"
)

func TestFormsThatClientsAccept(t *testing.T) {
	const tables = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for field, want := range map[string]string{
		"":                                    "whole",
		" ":                                   "whole",
		"*/*":                                 "whole",
		"application/*":                       "whole",
		"application/json; charset=utf-8":     "whole",
		"text/html, */*;q=0.1":                "whole",
		"application/yaml":                    "none",
		"application/vnd.kubernetes.protobuf": "none",
		"application/json;q=0":                "none",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io":                     "none",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json":    "whole",
		"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json": "whole",
		tables: "Table",
		tables + ",application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json": "Table",
		"application/json," + tables:                                           "whole",
		"application/json;q=0.5," + tables:                                     "Table",
		"application/json;q=x;q=y," + tables:                                   "Table",
		tables + ";q=0.5,application/json":                                     "whole",
		"application/json;as=Table;v=v2;g=meta.k8s.io,application/json":        "whole",
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList": "none", // not offered
		";;;,,/,": "none",
		strings.Repeat("text/html,", maxAccepts) + tables: "none",
		strings.Repeat("x", maxAccept+1):                  "whole",
	} {
		got := "none"
		if f, ok := accepted(http.Header{"Accept": {field}}, table); ok {
			got = map[form]string{whole: "whole", table: "Table"}[f]
		}
		if got != want {
			t.Errorf("%.120q: %s, want %s", field, got, want)
		}
	}
	if f, ok := accepted(http.Header{"Accept": {"text/html", "application/json;as=Table;v=v1;g=meta.k8s.io"}}, table); !ok || f != table {
		t.Errorf("two fields: %v, %v", f, ok)
	}
}

// FuzzAccept: nothing that was not offered is chosen, and who names neither JSON nor a wildcard gets nothing.
func FuzzAccept(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.5")
	f.Add("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;q=\"0.1\"")
	f.Add("*/*;q=NaN,,;")
	f.Fuzz(func(t *testing.T, field string) {
		got, ok := accepted(http.Header{"Accept": {field}}, table)
		if got != whole && got != table || !ok && got != whole {
			t.Errorf("%q: %v, %v", field, got, ok)
		}
		lower := strings.ToLower(field)
		if ok && len(field) <= maxAccept && strings.TrimSpace(field) != "" && !strings.Contains(lower, "json") && !strings.Contains(lower, "*") {
			t.Errorf("%q is answered", field)
		}
	})
}
