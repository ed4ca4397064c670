package routing

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// tenants is a configuration of two users who share listeners and nothing else: routes, a split, services and certificates of each.
func tenants() *model.Config {
	cfg := &model.Config{
		Listeners: []model.Listener{
			{Name: "shared", Ref: model.Ref{Kind: "Gateway", Namespace: "infra", Name: "shared"}, Port: 80, Protocol: model.HTTP},
			{Name: "good-db", Ref: model.Ref{Kind: "Gateway", Namespace: "good", Name: "db"}, Port: 5432, Protocol: model.TCP},
		},
	}
	for _, who := range []string{"good", "bad"} {
		ref := func(kind, name, field string) model.Ref {
			return model.Ref{Kind: kind, Namespace: who, Name: name, Field: field}
		}
		edit := &model.HeaderEdit{Set: []model.HeaderValue{{Name: "x-a", Value: "1"}}, Add: []model.HeaderValue{{Name: "x-b", Value: "2"}}, Remove: []string{"x-c"}}
		web, next, old := who+"/web:80", who+"/next:80", who+"/old:80"
		cfg.Certificates = append(cfg.Certificates, model.Certificate{Name: who + "/cert", Chain: "chain", Key: "key"})
		cfg.Listeners = append(cfg.Listeners, model.Listener{
			Name: who + "-tls", Ref: ref("Gateway", "tls", "spec.listeners[0]"), Port: 443, Protocol: model.HTTPS, Hostname: who + ".example",
			TLS: &model.ListenerTLS{Certificates: []string{who + "/cert"}},
		})
		cfg.Services = append(cfg.Services,
			model.Service{Name: web, Ref: ref("Service", "web", ""), Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: "10.0.0.1:80"}}},
			model.Service{Name: next, Ref: ref("Service", "next", ""), Protocol: model.H2C, Endpoints: []model.Endpoint{{Address: "10.0.0.2:80"}},
				Limits: &model.Limits{Requests: 9}, Ejection: &model.Ejection{GatewayErrors: 3},
				HealthCheck: &model.HealthCheck{Type: model.CheckHTTP, Path: "/up", Host: "up.example", Interval: 1, Timeout: 1, Healthy: 1, Unhealthy: 1, Statuses: []model.StatusRange{{From: 200, To: 299}}}},
			model.Service{Name: old, Ref: ref("Service", "old", ""), Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: "old.example"}},
		)
		cfg.Splits = append(cfg.Splits, model.Split{Ref: ref("TrafficSplit", "split", ""), Root: web,
			Matches: []model.SplitMatch{{Ref: ref("HTTPRouteGroup", "g", "spec.matches[0]"), Methods: []string{"GET"}, Path: "/split.*", Headers: []model.ValueMatch{{Type: model.Regex, Name: "x-split", Value: "[0-9]+"}}}},
			Leaves:  []model.Leaf{{Service: next, Weight: 9}, {Service: old, Weight: 1}}})
		backends := []model.Backend{{Ref: ref("HTTPRoute", "web", "spec.rules[0].backendRefs[0]"), Service: web, Weight: 1, Filters: model.Filters{RequestHeaders: edit}}}
		cfg.Routes = append(cfg.Routes, model.Route{
			Ref: ref("HTTPRoute", "web", ""), Created: time.Unix(1000, 0), ClientCertificate: who + "/cert",
			Attachments: []model.Attachment{{Listener: "shared", Hostnames: []string{who + ".example"}}, {Listener: who + "-tls", Hostnames: []string{who + ".example"}}},
			Rules: []model.Rule{
				{Ref: ref("HTTPRoute", "web", "spec.rules[0]"), Backends: backends, Matches: []model.Match{prefix("/a"), exact("/b"), regex("/c/[0-9]+"), prefix("/split")},
					Filters: model.Filters{Rewrite: &model.Rewrite{Hostname: "in.example", Path: &model.PathPatch{Value: "/x"}}, ResponseHeaders: edit,
						Mirrors: []model.Mirror{{Service: next, Numerator: 1, Denominator: 2}}},
					Timeouts: model.Timeouts{Request: 5}, Retry: &model.Retry{Attempts: 1, Codes: []int{503}}, Session: &model.Session{Name: "s", Type: model.Cookie}},
				{Ref: ref("HTTPRoute", "web", "spec.rules[1]"), Matches: []model.Match{prefix("/r")},
					Filters: model.Filters{Redirect: &model.Redirect{Scheme: "https", Hostname: "r.example", Port: 8443, Status: 301, Path: &model.PathPatch{Prefix: true, Value: "/s"}}}},
				{Ref: ref("HTTPRoute", "web", "spec.rules[2]"), Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}, Method: "POST",
					Headers: []model.ValueMatch{{Type: model.Regex, Name: "x-h", Value: "a+"}}, Query: []model.ValueMatch{{Type: model.Exact, Name: "q", Value: "1"}}}},
					Fault: &model.Fault{Status: 503, Reason: "NoBackends"}},
			},
		})
	}
	cfg.Routes = append(cfg.Routes, model.Route{Ref: model.Ref{Kind: "TCPRoute", Namespace: "good", Name: "db"}, Kind: model.RouteTCP,
		Attachments: []model.Attachment{{Listener: "good-db", Hostnames: []string{"*"}}}, Rules: []model.Rule{{Backends: []model.Backend{{Service: "good/web:80", Weight: 1}}}}})
	return cfg
}

// hostile are values that something once took and something else did not.
var hostile = []string{
	"", "/x%00", "/a/..;b", "/a/..%5cb", "/%252e%252e", `/a\Q.b`, strings.Repeat("(", 999) + "a" + strings.Repeat(")", 999), strings.Repeat("(?:b", 500) + "a" + strings.Repeat(")*", 500),
	strings.Repeat(".{0,1000}", 455) + "!", "(", "a)(b", "[", "/100%", "/%zz", "a?b", "a#b", "a b", "a\r\nb: c", "a\x00", "\xff", "*", "*.", "*.*.x", "a..b", "UPPER.example", "host:99999", "[::1",
	"http", "https", "tcp", "h2c", "udp", "grpc", "exact", "prefix", "regex", "cookie", "header", "content-length", "10.0.0.1:0", "none/none:80", "none#x", "shared", "good-tls", "good-db", "bad-tls", "/",
}

// corrupt changes one value somewhere in v: to something hostile, to nothing, or twice what it was.
func corrupt(r *rand.Rand, v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			if r.IntN(4) == 0 {
				v.Set(reflect.New(v.Type().Elem()))
			}
			return
		}
		if r.IntN(6) == 0 {
			v.SetZero()
			return
		}
		own := reflect.New(v.Type().Elem())
		own.Elem().Set(v.Elem())
		v.Set(own)
		corrupt(r, own.Elem(), text)
	case reflect.Slice:
		own := reflect.MakeSlice(v.Type(), 0, v.Len()+1)
		own = reflect.AppendSlice(own, v)
		v.Set(own)
		switch n := v.Len(); {
		case n == 0 || r.IntN(12) == 0:
			v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
		case r.IntN(12) == 0:
			v.SetZero()
		case r.IntN(12) == 0:
			v.Set(reflect.Append(v, v.Index(r.IntN(n))))
		default:
			corrupt(r, v.Index(r.IntN(n)), text)
		}
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			corrupt(r, v.Field(r.IntN(v.NumField())), text)
		}
	case reflect.String:
		if text == "" || r.IntN(2) == 0 {
			text = hostile[r.IntN(len(hostile))]
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{-1, 0, 1, 65536, math.MinInt32, math.MaxInt32}[r.IntN(6)])
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := []uint64{0, 1, 2, math.MaxUint32, math.MaxUint64}[r.IntN(5)]
		v.SetUint(n & (1<<v.Type().Bits() - 1))
	}
}

// asked are the requests of the user who did nothing wrong, and what a table decides on each.
func asked(t *testing.T, table *Table) []string {
	t.Helper()
	var all []string
	for _, number := range []int32{80, 443, 5432} { // others are none of that user's
		port := table.Port("tcp", "", number)
		if port == nil {
			continue
		}
		if !port.Protocol.Requests() {
			if rule := port.Rule(); rule != nil && rule.Route.Ref.Namespace == "good" {
				all = append(all, fmt.Sprint(port.Number, rule.Route.Ref, rule.Pick().Backend.Service))
			}
			continue
		}
		l := port.Listener("good.example")
		if l == nil {
			continue
		}
		for _, path := range []string{"/a", "/a/x", "/b", "/c/1", "/r/x", "/split/x", "/none"} {
			for _, method := range []string{"GET", "POST"} {
				req := &Request{Host: "good.example", Method: method, Path: path, Query: "q=1", Fields: fieldMap{"x-h": "aa", "x-split": "1"}}
				var d Decision
				if !l.Match(req, &d) {
					all = append(all, fmt.Sprint(port.Number, method, path, " none ", req.Excess()))
					continue
				}
				text := fmt.Sprint(port.Number, method, path, " ", l.Listener.Name, d.Rule.Route.Ref, d.Rule.Index, d.Prefix, d.Match.Path, d.Rule.Rule.Fault == nil, len(d.Rule.Mirrors))
				for _, b := range d.Rule.Backends {
					leaf := b.Leaf(req)
					text += fmt.Sprint(b.Backend.Service, b.Backend.Fault == nil, leaf != nil)
				}
				all = append(all, text)
			}
		}
	}
	return all
}

func clone(t *testing.T, cfg *model.Config) *model.Config {
	t.Helper()
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := &model.Config{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// oneBad makes the second user's part invalid, in as many places as given.
func oneBad(r *rand.Rand, cfg *model.Config, places int, text string) {
	mine := func(ref model.Ref) bool { return ref.Namespace == "bad" }
	for range places {
		switch r.IntN(6) {
		case 0:
			for i := range cfg.Services {
				if mine(cfg.Services[i].Ref) && r.IntN(2) == 0 {
					corrupt(r, reflect.ValueOf(&cfg.Services[i]).Elem(), text)
				}
			}
		case 1:
			for i := range cfg.Splits {
				if mine(cfg.Splits[i].Ref) {
					corrupt(r, reflect.ValueOf(&cfg.Splits[i]).Elem(), text)
				}
			}
		case 2:
			for i := range cfg.Listeners {
				if mine(cfg.Listeners[i].Ref) {
					corrupt(r, reflect.ValueOf(&cfg.Listeners[i]).Elem(), text)
				}
			}
		case 3:
			corrupt(r, reflect.ValueOf(&cfg.Certificates[1]).Elem(), text)
		default:
			for i := range cfg.Routes {
				if mine(cfg.Routes[i].Ref) {
					corrupt(r, reflect.ValueOf(&cfg.Routes[i]).Elem(), text)
				}
			}
		}
	}
}

// intrudes reports whether the configuration reaches the other user by its meaning, not by being invalid: a front end
// lets nobody do that.
func intrudes(cfg *model.Config) bool {
	for _, r := range cfg.Routes {
		for _, a := range r.Attachments {
			for _, h := range a.Hostnames {
				if (r.Ref.Namespace != "good" || r.Ref.Name == "") && (h == "*" || strings.HasPrefix(h, "*.") || strings.EqualFold(h, "good.example")) {
					return true
				}
			}
			if r.Ref.Namespace != "good" && strings.HasPrefix(a.Listener, "good") {
				return true
			}
		}
	}
	own := func(namespace, name string) bool {
		return namespace == "good" || !strings.HasPrefix(name, "good") && name != "shared"
	}
	for _, s := range cfg.Services {
		if !own(s.Ref.Namespace, s.Name) {
			return true
		}
	}
	for _, s := range cfg.Splits {
		if !own(s.Ref.Namespace, s.Root) {
			return true
		}
	}
	for _, l := range cfg.Listeners {
		if l.Ref.Namespace != "good" && (strings.HasPrefix(l.Name, "good") || l.Port == 80 || l.Port == 5432 || strings.HasSuffix(l.Hostname, "good.example") || l.Protocol != model.HTTPS) && l.Name != "shared" {
			return true
		}
	}
	return cfg.Certificates[1].Name == "good/cert"
}

func checkOneBad(t *testing.T, seed uint64, places int, text string) (valid bool) {
	t.Helper()
	base, _ := Compile(tenants(), nil)
	want := asked(t, base)
	cfg := tenants()
	oneBad(rand.New(rand.NewPCG(seed, 1)), cfg, places, text)
	before := clone(t, cfg)
	invalid := cfg.Validate()
	sound, left := cfg.Sound()
	if err := sound.Validate(); err != nil {
		t.Fatalf("what Sound returns is not valid: %v\nbefore: %v", err, invalid)
	}
	if (invalid == nil) != (left == nil) || invalid == nil && sound != cfg {
		t.Fatalf("invalid: %v; left out: %v", invalid, left)
	}
	for _, o := range left {
		if o.Reason == "" || o.Ref.Kind == "" && o.Ref.Name == "" && o.Ref.Namespace == "bad" {
			t.Errorf("omission %+v", o)
		}
	}
	if !reflect.DeepEqual(clone(t, cfg), before) {
		t.Error("Sound changed its input")
	}
	table, missing := Compile(sound, base)
	if missing != nil {
		t.Errorf("Validate accepts it, and Compile leaves out %v", missing)
	}
	direct, _ := Compile(cfg, nil) // as it came
	if intrudes(cfg) {
		return invalid == nil
	}
	for name, table := range map[string]*Table{"by way of Sound": table, "directly": direct} {
		if got := asked(t, table); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, the other user's requests differ:\n%s\nwant\n%s\n(%v)", name, strings.Join(got, "\n"), strings.Join(want, "\n"), invalid)
		}
	}
	return invalid == nil
}

func TestOneInvalidPartLeavesAllOthersAsTheyAre(t *testing.T) {
	valid := 0
	n := size.Of(100, 1000)
	for seed := range uint64(n) {
		if checkOneBad(t, seed, 1+int(seed%3), "") {
			valid++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if valid < n/20 || valid > n*19/20 {
		t.Errorf("%d of %d configurations were valid: that tests too little", valid, n)
	}
}

// FuzzOneInvalidPart checks that Compile leaves nothing out of what Validate accepts, that Validate accepts the result
// of Sound, and that an error in one user's part does not change how another's requests are decided.
func FuzzOneInvalidPart(f *testing.F) {
	for i, s := range hostile {
		f.Add(uint64(i), byte(1), s)
		f.Add(uint64(i)*7919, byte(2), s)
	}
	f.Fuzz(func(t *testing.T, seed uint64, places byte, text string) {
		checkOneBad(t, seed, 1+int(places%4), text)
	})
}
