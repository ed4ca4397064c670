package access

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/routing"
)

// techniques are pieces of targets that a fuzzer puts together.
var techniques = []string{
	"/", "public", "team", "upload", "admin", "a", "..", ".", "%2e", "%2E", "%2f", "%5c", `\`, "//", ";", ";x=y", "%3b", "%00", "%0a", "%20", "+", "#", "%23", "?", "%3f", "%25", "25", "2e", "2f", "%c0%ae", "%c0%af", "%e2%84%aa", "%41", "A", "%7f", "%09",
	"http://cart", "*", "%", "x/", "/../", "/public/a", "/team/x", "/upload",
}

// fields of a request head, which a fuzzer adds.
var headFields = []string{"X-Team: a", "X-Team: b", "X-Team: c", "X_Team: c", "Connection: x-team", "X-HTTP-Method-Override: DELETE", "X-Method-Override: GET", "X-Team: a, b", "x-team:a", "X_HTTP_METHOD: PUT"}

// composed is a request line and fields, as bytes of a fuzzer choose them: the method, pieces up to 0xff, fields.
func composed(choice []byte) string {
	method := "GET"
	if len(choice) > 0 {
		method, choice = []string{"GET", "POST", "DELETE", "get"}[choice[0]%4], choice[1:]
	}
	pieces, fields, _ := strings.Cut(string(choice), "\xff")
	target := ""
	for i := 0; i < len(pieces) && i < 12; i++ {
		target += techniques[int(pieces[i])%len(techniques)]
	}
	var more []string
	for i := 0; i < len(fields) && i < 4; i++ {
		more = append(more, headFields[int(fields[i])%len(headFields)])
	}
	return head(method+" "+target, more...)
}

// judgedFields are those that policies see: of a request without those that Connection names.
type judgedFields []http1.Field

func (f judgedFields) Field(name string) (value string, ok bool) {
	for i := range f {
		if !strings.EqualFold(f[i].Name, name) || http1.HopByHop(&f[i], f) {
			continue
		}
		if ok {
			value += ", "
		}
		value, ok = value+f[i].Value, true
	}
	return value, ok
}

// theRules are those of the corpus, as policies.
func theRules() *policy.Table {
	rule := func(method, path string, headers ...model.ValueMatch) model.Policy {
		return model.Policy{
			Targets: []model.Target{{Namespace: "shop", Kind: "Deployment", Name: "cart"}}, Sources: []model.Source{{Kind: "Deployment", Namespace: "shop", Name: "web"}},
			Traffic: model.TrafficHTTP, Methods: []string{method}, Paths: []string{path}, Headers: headers,
		}
	}
	w := &model.Workload{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1"}, Groups: []model.Group{{Kind: "Deployment", Name: "cart"}}}
	return policy.Compile(w, []model.Policy{
		rule("GET", "/public/[a-z0-9]+$"), rule("POST", "/upload$"), rule("GET", "/team/", model.ValueMatch{Type: model.Regex, Name: "x-team", Value: "a|b"}),
	})
}

// FuzzNoHeadLeadsAroundARule parses heads and judges them as a sidecar does, and reads what it would send as servers do.
func FuzzNoHeadLeadsAroundARule(f *testing.F) {
	for i := range techniques {
		f.Add([]byte{0, 42, byte(i), 40, 4, 0xff, 0}, "")
	}
	for _, w := range ways() {
		if at := strings.Index(w.bytes, "\r\n\r\n"); at >= 0 && at < 2000 {
			f.Add([]byte(nil), w.bytes[:at+4])
		}
	}
	table := theRules()
	subject := table.Subject(&policy.Peer{ID: "spiffe://cluster.local/ns/shop/sa/apps", Namespace: "shop", Account: "apps", Pod: "web", Owners: []policy.Owner{{Kind: "Deployment", Name: "web"}}}, 8080)
	if subject.Judge(&policy.Request{Method: "GET", Path: "/public/a"}).Reason != policy.Allowed {
		f.Fatal("nothing is permitted")
	}
	f.Fuzz(func(t *testing.T, choice []byte, written string) {
		if written == "" {
			written = composed(choice)
		}
		if len(written) > 4096 {
			return
		}
		r, refused := exchange.PreviewRequest([]byte(written))
		if refused != nil || r.Path == "*" || r.Method == "CONNECT" {
			return
		}
		normal, err := routing.NormalizePath(r.Path)
		if err != nil {
			return
		}
		asked := policy.Request{Method: r.Method, Fields: judgedFields(r.Fields), Ambiguous: routing.Ambiguity(r.Path) != routing.OneReading}
		asked.Path, _ = policy.Path(normal, nil)
		if !subject.Judge(&asked).Reason.Passes() {
			return
		}
		// What the backend gets: the path as it was written, and the fields without those that end here or that are taken for one that decides.
		got := received{line: r.Method + " " + r.Path + " HTTP/1.1", fields: [][2]string{{"Host", "cart"}}}
		for i := range r.Fields {
			field := &r.Fields[i]
			alike := table.DecidesBy(field.Name, http1.SameVariable) && !table.DecidesBy(field.Name, http1.EqualFold)
			if field.ID != http1.FieldHost && field.ID != http1.FieldContentLength && !http1.HopByHop(field, r.Fields) && !alike {
				got.fields = append(got.fields, [2]string{field.Name, field.Value})
			}
		}
		if why := got.forbidden(); why != "" {
			t.Errorf("%q passes: %s", written, why)
		}
	})
}
