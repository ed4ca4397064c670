package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/cli"
	"github.com/weirmesh/weir/internal/model"
)

const examples = "../../examples/"

// gateway is a Gateway and a Service with an endpoint, for routes of tests.
const gateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 8080, protocol: HTTP}]
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80, targetPort: 9001}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: 9001}]
endpoints: [{addresses: [127.0.0.1]}]
`

// wrongRoute mirrors 142 %.
const wrongRoute = `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - filters:
    - {type: RequestMirror, requestMirror: {backendRef: {name: shop, port: 80}, percent: 142}}
    backendRefs: [{name: shop, port: 80}]
`

func TestCheckIsQuietAboutGoodFiles(t *testing.T) {
	weir("", "check", examples+"canary").want(t, 0, "6 objects, nothing to complain about")
}

func TestCheckNamesFileObjectFieldReasonAndFix(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, []byte(gateway+wrongRoute), 0o600); err != nil {
		t.Fatal(err)
	}
	weir("", "check", file).want(t, 1,
		file+":", "HTTPRoute default/shop", "spec.rules[0].filters[0].requestMirror", "error", "fix: ", "1 error")
}

func TestCheckReadsTheStandardInputAndPrintsJSON(t *testing.T) {
	r := weir(gateway+wrongRoute, "check", "-o", "json", "-")
	r.want(t, 1)
	var report struct {
		Objects, Errors int
		Findings        []struct {
			Code, Severity, Message, Fix string
			Ref                          model.Ref
			Origin                       struct{ File string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Errors != 1 || len(report.Findings) != 1 {
		t.Fatalf("report = %+v, want one error", report)
	}
	f := report.Findings[0]
	if f.Code == "" || f.Severity != "error" || f.Ref.Kind != "HTTPRoute" || f.Origin.File != "-" || f.Fix == "" {
		t.Errorf("finding = %+v, want code, severity, object, place and fix", f)
	}
}

func TestCheckFailsFromTheSeverityAskedFor(t *testing.T) {
	weir(gateway+wrongRoute, "check", "--fail-on", "never", "-").want(t, 0, "1 error")
	weir(gateway, "check", "--fail-on", "warning", "-").want(t, 0)
	lonely := strings.Replace(wrongRoute, ", percent: 142", "", 1) // its Gateway is missing
	r := weir(lonely, "check", "-o", "json", "-")
	var report struct{ Errors, Warnings int }
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Errors == 0 && report.Warnings > 0 {
		weir(lonely, "check", "-").want(t, 0)
		weir(lonely, "check", "--fail-on", "warning", "-").want(t, 1)
	}
	if report.Errors+report.Warnings == 0 {
		t.Error("a route without its Gateway goes unnoticed")
	}
}

func TestListOfCodesIsTheTable(t *testing.T) {
	weir("", "check", "--list-codes").want(t, 0, "WR101", "error", "WR301")
	r := weir("", "check", "--list-codes", "-o", "json")
	var codes []struct{ Code, Severity, Title, Meaning string }
	if err := json.Unmarshal([]byte(r.stdout), &codes); err != nil {
		t.Fatal(err)
	}
	if len(codes) < 10 || codes[0].Meaning == "" {
		t.Errorf("%d codes, want all of them with their meaning", len(codes))
	}
}

func TestDumpIsTheModelWithoutItsSecrets(t *testing.T) {
	r := weir("", "dump", examples+"tls")
	r.want(t, 0, `"key": "[redacted]"`, "BEGIN CERTIFICATE", "!PRIVATE KEY")
	var cfg model.Config
	if err := json.Unmarshal([]byte(r.stdout), &cfg); err != nil {
		t.Fatal(err)
	}
	if len(cfg.Listeners) != 3 || len(cfg.Certificates) != 2 {
		t.Errorf("%d listeners and %d certificates, want 3 and 2", len(cfg.Listeners), len(cfg.Certificates))
	}
	if again := weir("", "dump", examples+"tls"); again.stdout != r.stdout {
		t.Error("two dumps of the same files differ")
	}
}

func TestDumpSaysThatThereAreFindings(t *testing.T) {
	weir(gateway+wrongRoute, "dump", "-").want(t, 0, `"routes"`, "stderr:1 error")
}

func TestExplainSaysWhoWinsAndWhyOthersLost(t *testing.T) {
	weir("", "explain", examples+"header-match", "--", "GET", "http://shop.example:8080/cart", "-H", "x-beta: no").want(t, 0,
		"default/edge/http", "port 8080", `HTTPRoute default/shop rule "stable"`, "header-match.yaml:",
		`header "user-agent" is absent, wanted regex ".*Firefox.*"`, `header "x-beta" is "no", wanted "yes"`,
		"100 %   default/shop-v1:80  at 127.0.0.1:9001", "gets GET /cart, host shop.example:8080")
}

func TestExplainShowsProbabilitiesMirrorsAndFilters(t *testing.T) {
	weir("", "explain", examples+"canary", "--", "http://shop.example/").want(t, 0,
		"90 %    default/shop-v1:80", "10 %    default/shop-v2:80", "note: nothing listens on port 80")
	weir("", "explain", examples+"mirror-fraction", "--", "-X", "POST", "http://shop.example/").want(t, 0,
		"request     POST", "0.5 %   default/shop-v2:80  exactly 5 of every 1000")
	weir("", "explain", examples+"headers", "--", "http://shop.example/").want(t, 0,
		"request header remove x-debug", "request header set x-env: prod", "response header add x-served-by: weir",
		"request header set x-variant: v2")
	weir("", "explain", examples+"timeouts-retry", "--", "http://shop.example/").want(t, 0,
		"the whole request may take 1s", "one attempt may take 200ms", "retried up to 2 times, also on [503], at least 20ms apart")
	weir("", "explain", examples+"sessions", "--", "http://shop.example/cart").want(t, 0,
		"cookie shop-session keeps a client at the endpoint that served it first, for 12h0m0s, also after the browser was closed")
	weir("", "explain", examples+"sessions", "--", "http://shop.example/api").want(t, 0,
		"header x-shop-session keeps a client at the endpoint that served it first, for 1h0m0s")
	weir("", "explain", examples+"cross-namespace", "--", "http://shop.example/stock").want(t, 0, "500, RefNotPermitted")
}

func TestExplainShowsWhatIsForwarded(t *testing.T) {
	for url, want := range map[string]string{
		"http://shop.example:8080/shop/a%2Fb?x=1": "gets GET /a%2Fb?x=1, host shop.example:8080",
		"http://shop.example:8080/shop":           "gets GET /, host shop.example:8080",
		"http://shop.example:8080/legacy/a?x":     "gets GET /index?x, host legacy.internal",
		"http://shop.example:8080/old/a?x=1":      "301 to http://shop.example:8080/shop/a?x=1",
		"http://shop.example:8080/docs":           "302 to https://docs.example/start",
	} {
		weir("", "explain", examples+"redirect-rewrite", "--", url).want(t, 0, want)
	}
}

func TestExplainSaysWhenNothingTakesTheRequest(t *testing.T) {
	for url, want := range map[string]string{
		"http://shop.example:81/":  "nothing listens for http on port 81; there is: http on *:8080",
		"https://shop.example/":    "nothing listens for https on port 443",
		"http://other.example/":    "no rule of the listener matches, the answer is 404",
		"http://shop.example/%00":  "the answer is 400",
		"http://shop.example/%zz/": "the answer is 400",
	} {
		weir("", "explain", examples+"canary", "--", url).want(t, 3, want)
	}
	weir("", "explain", examples+"tls", "--", "https://stranger.example/").want(t, 3,
		`no listener on port 8443 takes the host "stranger.example"`)
}

func TestExplainPrintsJSON(t *testing.T) {
	r := weir("", "explain", "-o", "json", examples+"mirror-several", "--", "http://shop.example/a?b")
	r.want(t, 0)
	var e struct {
		Listener struct{ Name string }
		Winner   struct{ RuleName string }
		Backends []struct {
			Service     string
			Probability float64
			Forwarded   struct{ Target, Host string }
		}
		Mirrors []struct {
			Service                string
			Probability            float64
			Numerator, Denominator int
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &e); err != nil {
		t.Fatal(err)
	}
	if e.Listener.Name != "default/edge/http" || e.Winner.RuleName != "all" || len(e.Backends) != 1 || len(e.Mirrors) != 3 {
		t.Fatalf("explanation = %+v", e)
	}
	if b := e.Backends[0]; b.Probability != 1 || b.Forwarded.Target != "/a?b" || b.Forwarded.Host != "shop.example" {
		t.Errorf("backend = %+v, want all of it, with the target as sent", b)
	}
	if m := e.Mirrors[2]; m.Probability != 0.125 || m.Numerator != 1 || m.Denominator != 8 {
		t.Errorf("mirror = %+v, want 1/8", m)
	}
}

func TestWrongCommandLinesAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"frobnicate"}, {"check"}, {"check", "--nope"}, {"check", "-o", "xml", "x"}, {"check", "/does/not/exist"},
		{"dump"}, {"run"}, {"run", "/does/not/exist"}, {"run", "--address", "nowhere", examples + "canary"},
		{"run", "--mirror-header", "a b", examples + "canary"}, {"run", "--mirror-max-bytes", "many", examples + "canary"},
		{"run", "--body-grace", "0", examples + "canary"}, {"run", "--min-body-rate", "-1", examples + "canary"},
		{"explain", examples + "canary"}, {"explain", examples + "canary", "--"}, {"explain", "--", "GET", "http://a/"},
		{"explain", examples + "canary", "--", "ftp://a/"}, {"explain", examples + "canary", "--", "http://a/", "-H", "x"},
		{"explain", examples + "canary", "--", "http://a:99999/"}, {"demo", "--rate", "0"}, {"demo", "now"},
		{"echo"}, {"echo", "9001"}, {"echo", "a=127.0.0.1:0", "--tls-cert", "nope"}, {"echo", "a=127.0.0.1:0", "--call", "cart"}, {"completion"}, {"completion", "tcsh"},
		{"version", "2"}, {"help", "frobnicate"},
	} {
		r := weir("", args...)
		if r.code != 2 || !strings.HasPrefix(r.err, "weir: ") || r.stdout != "" {
			t.Errorf("weir %s: code %d, stdout %q, stderr %q, want a usage error", strings.Join(args, " "), r.code, r.stdout, r.err)
		}
	}
	weir("", "chek").want(t, 2, `stderr:did you mean "check"?`)
}

func TestEnvironmentSetsFlagsOfRun(t *testing.T) {
	t.Setenv("WEIR_LOG_FORMAT", "xml")
	weir("", "run", examples+"canary").want(t, 2, `stderr:WEIR_LOG_FORMAT="xml": `, "stderr:want text, json")
	// The command line wins.
	weir("", "run", "--log-format", "json", "/does/not/exist").want(t, 2, "stderr:!WEIR_LOG_FORMAT")
}

func TestHelpOfEveryCommandHasAnExample(t *testing.T) {
	root := weir("", "help")
	root.want(t, 0, "Exit codes:", "Commands:")
	for _, name := range []string{"run", "check", "dump", "explain", "demo", "echo"} {
		weir("", name, "--help").want(t, 0, "Usage:\n  weir "+name, "Examples:", "Flags:")
		weir("", "help", name).want(t, 0, "Usage:\n  weir "+name)
		if !strings.Contains(root.stdout, "\n  "+name+" ") {
			t.Errorf("weir help does not list %s", name)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	weir("", "version").want(t, 0, "weir ", "go1.")
	var v struct{ Version, Go, Platform string }
	if err := json.Unmarshal([]byte(weir("", "version", "-o", "json").stdout), &v); err != nil || v.Version == "" || v.Go == "" {
		t.Errorf("version = %+v, %v", v, err)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		weir("", "completion", shell).want(t, 0, "weir")
	}
}

func TestGeneratedPagesAreUpToDate(t *testing.T) {
	pages, err := (cli.Program{}).Docs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range pages {
		have, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != page {
			t.Errorf("docs/%s is out of date: run make generate", name)
		}
	}
}

func TestANamespaceWithNothingInItIsTold(t *testing.T) {
	for _, command := range []string{"check", "status"} {
		weir(gateway, command, "-n", "typo", "-").want(t, 2, `stderr:"typo": nothing is in that namespace; there is: default`)
		weir(gateway, command, "-n", "default", "-").want(t, 0)
		// What is left out for an error is there all the same.
		weir(strings.ReplaceAll(gateway, "{name: ", "{namespace: shop, name: ")+wrongRoute, command, "-n", "shop", "-").want(t, 0)
		weir("kind: x\napiVersion: y\n", command, "-n", "typo", "-").want(t, 2, "stderr:nor in any other")
	}
}
