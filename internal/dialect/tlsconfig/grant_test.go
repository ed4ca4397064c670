package tlsconfig_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
)

func TestNamesOfServicesCannotBeGranted(t *testing.T) {
	for _, wrong := range []string{"", "shop", "shop=", "=a.b", "shop=*", "shop=*.", "shop=A.b", "shop=a.svc", "shop=*.svc", "shop=a.b.svc.cluster.local", "shop=*.cluster.local", "a.b=c", "shop=a.", "shop=" + strings.Repeat("a.", 127) + "aa"} {
		if got, err := tlsconfig.ParseGrants([]string{wrong}); err == nil {
			t.Errorf("%q is %+v", wrong, got)
		}
	}
	if _, err := tlsconfig.ParseGrants(make([]string, 1025)); err == nil {
		t.Error("1025 are taken")
	}
}

// FuzzParseGrants never lets a name of Kubernetes' own through.
func FuzzParseGrants(f *testing.F) {
	for _, seed := range []string{"shop=a.b", "shop=*.example.com", "shop=*.svc", "shop=a.cluster.local", "==", "shop=*.*.a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := tlsconfig.ParseGrants([]string{text})
		if err != nil {
			return
		}
		if len(all) != 1 || all[0].Namespace+"="+all[0].Name != text || strings.HasSuffix(text, ".svc") || strings.HasSuffix(text, "cluster.local") && !strings.HasSuffix(text, "-cluster.local") && strings.Contains(text, ".cluster.local") || strings.Count(text, "*") > 1 {
			t.Errorf("%q is %+v", text, all)
		}
	})
}
