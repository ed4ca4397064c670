package cli_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestExplainSaysWhichMirrorsAreOff(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(examples+"mirror-percent")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mirror-percent.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	off := ""
	for _, fields := range []string{
		"backendRef: {name: shop-v2, port: 80}, percent: 0", "backendRef: {name: shop-v2, port: 80}, percent: 150",
		"backendRef: {name: nowhere, port: 80}", "backendRef: {name: shop-v2, namespace: other, port: 80}",
		"backendRef: {name: shop-v2, port: 80}, fraction: {denominator: 50}", "backendRef: {name: shop-v2, port: 80}, percent: 1, fraction: {denominator: 0}",
	} {
		off += "    - {type: RequestMirror, requestMirror: {" + fields + "}}\n"
	}
	before, after, _ := strings.Cut(string(text), "    filters:\n")
	if err := os.WriteFile(file, []byte(before+"    filters:\n"+off+after), 0o600); err != nil {
		t.Fatal(err)
	}
	weir("", "explain", dir, "--", "http://shop.example:8080/").want(t, 0,
		"mirrored to off     default/shop-v2:80  its share is 0: nothing is copied",
		"            42 %    default/shop-v2:80",
		"off     spec.rules[0].filters[1]", "WR301  percent 150", "fix: write a percent from 0 to 100",
		"off     spec.rules[0].filters[2]", "WR530  Service default/nowhere does not exist",
		"off     spec.rules[0].filters[3]", "WR511",
		"off     spec.rules[0].filters[4]", "WR303  numerator 100 is above denominator 50", "!WR305",
		"off     spec.rules[0].filters[5]", "WR302", "!WR304", "!filters[6]")
	weir("", "explain", "-o", "json", dir, "--", "http://shop.example:8080/").want(t, 0, `"mirrorsOff"`, `"code": "WR530"`)
}

// TestExplainSaysThatARedirectIsNotMirrored has the two filters in a rule, and in one of its backends.
func TestExplainSaysThatARedirectIsNotMirrored(t *testing.T) {
	t.Parallel()
	const filters = `filters: [{type: RequestMirror, requestMirror: {backendRef: {name: shop, port: 80}}}, {type: RequestRedirect, requestRedirect: {hostname: new.example}}]`
	route := strings.SplitAfter(wrongRoute, "rules:\n")[0]
	weir(gateway+route+"  - "+filters, "explain", "-", "--", "http://shop.example:8080/").want(t, 0,
		"302 to http://new.example:8080/", "mirrored to off     spec.rules[0].filters[0]", "WR548  the RequestRedirect filter answers the requests")
	weir(gateway+route+"  - backendRefs: [{name: shop, port: 80, "+filters+"}]", "explain", "-", "--", "http://shop.example:8080/").want(t, 0,
		"302 to http://new.example:8080/", "mirrored to off     spec.rules[0].backendRefs[0].filters[0]", "WR548  the RequestRedirect filter answers the requests")
}

// TestDroppedCopiesAreAFinding lets a mirror hang that may have one copy at a time.
func TestDroppedCopiesAreAFinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hang, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hang.Close()
	w.backends["green"] = strconv.Itoa(hang.Addr().(*net.TCPAddr).Port)
	w.write("services.yaml", w.services())
	const backends = "backendRefs:"
	route := w.route("blue")
	if strings.Count(route, backends) != 1 {
		t.Fatalf("another route than expected:\n%s", route)
	}
	w.write("route.yaml", strings.Replace(route, backends, "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: green, port: 80}}}], "+backends, 1))
	w.run("--mirror-max-in-flight", "1", "--drain-timeout", "100ms")
	for range 3 {
		if got := w.get(); got != "blue" {
			t.Fatal(got)
		}
	}
	w.weir.WaitLog("finding", func(fields map[string]any) bool {
		fix, _ := fields["fix"].(string)
		return fields["code"] == "WR806" && strings.Contains(fix, "--mirror-max-in-flight 2")
	})
	_, status := w.admin("status")
	for _, part := range []string{`"code": "WR806"`, "dropped_in_flight", "route.yaml", ".filters[0]", "default/green:80"} {
		if !strings.Contains(status, part) {
			t.Errorf("/status lacks %q:\n%s", part, status)
		}
	}
}
