package aggregated

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority makes clients' certificates.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key}
	a.cert = a.issue("root", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	return a
}

// issue makes a certificate for clients, signed by the authority.
func (a *authority) issue(name string, edit func(*x509.Certificate)) *x509.Certificate {
	a.t.Helper()
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(template)
	}
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, a.key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// config is what an API server with that authority says in its ConfigMap.
func (a *authority) config() map[string]string {
	return map[string]string{
		"client-ca-file":                     "somebody else's",
		"requestheader-client-ca-file":       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})),
		"requestheader-allowed-names":        `["front-proxy-client"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
}

// apiServer stands for one: it has a ConfigMap, and says who may what.
type apiServer struct {
	client.Client
	mu      sync.Mutex
	data    map[string]string // nil: there is no ConfigMap
	err     error
	may     func(authorizationv1.SubjectAccessReviewSpec) bool
	reviews []authorizationv1.SubjectAccessReviewSpec
	wait    chan struct{} // if set, is closed when a review may be answered
}

func (s *apiServer) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.data == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	case key.Namespace != "kube-system" || key.Name != "extension-apiserver-authentication":
		return errors.New("it reads " + key.String())
	}
	o.(*corev1.ConfigMap).Data = s.data
	return nil
}

func (s *apiServer) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	review := o.(*authorizationv1.SubjectAccessReview)
	if s.wait != nil {
		select {
		case <-s.wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reviews = append(s.reviews, review.Spec)
	if s.err != nil {
		return s.err
	}
	review.Status.Allowed = s.may(review.Spec)
	return nil
}

func (s *apiServer) set(edit func(*apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
}

// asked are the reviews since the last time, in a few words each.
func (s *apiServer) asked() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reviews {
		text := r.User
		if a := r.ResourceAttributes; a != nil {
			text += fmt.Sprintf(" %s %s/%s %s.%s.%s/%s", a.Verb, a.Namespace, a.Name, a.Resource, a.Version, a.Group, a.Subresource)
		} else {
			text += fmt.Sprintf(" %s %s", r.NonResourceAttributes.Verb, r.NonResourceAttributes.Path)
		}
		all = append(all, text)
	}
	s.reviews = nil
	return all
}

// setup is an API that has read the ConfigMap of its API server, and the certificate of that.
func setup(t testing.TB) (a *API, s *apiServer, proxy *x509.Certificate) {
	t.Helper()
	ca := newAuthority(t)
	s = &apiServer{data: ca.config(), may: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}
	a = &API{Client: s, Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Remote-") {
				t.Errorf("the handler sees %s", name)
			}
		}
		_, _ = io.WriteString(w, "served")
	})}
	if err := a.read(t.Context()); err != nil || !a.Ready() {
		t.Fatal(err)
	}
	return a, s, ca.issue("front-proxy-client", nil)
}

// ask sends a request, with a certificate if there is one, for somebody with groups.
func ask(a *API, path string, certificate *x509.Certificate, who string, groups ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	if who != "" {
		r.Header.Set("X-Remote-User", who)
	}
	for _, g := range groups {
		r.Header.Add("X-Remote-Group", g)
	}
	r.TLS = &tls.ConnectionState{}
	if certificate != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{certificate}
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// refused checks that an answer is a Status with a code and reason.
func refused(t testing.TB, w *httptest.ResponseRecorder, code int, reason metav1.StatusReason, message string) {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if w.Code != code || int(s.Code) != code || s.Kind != "Status" || s.APIVersion != "v1" || s.Status != "Failure" || s.Reason != reason || !strings.Contains(s.Message, message) {
		t.Errorf("%d %+v, want %d %s %q", w.Code, s, code, reason, message)
	}
}

const pods = "/apis/g/v/namespaces/a/pods"

// TestOnlyTheAPIServerIsBelieved: whoever else says who they are is nobody, and nothing is asked about them.
func TestOnlyTheAPIServerIsBelieved(t *testing.T) {
	a, s, proxy := setup(t)
	ca := newAuthority(t) // another, of the same names
	for name, c := range map[string]*x509.Certificate{
		"nobody's":         nil,
		"another root's":   ca.issue("front-proxy-client", nil),
		"self-signed":      (&authority{t: t, key: ca.key}).issue("front-proxy-client", nil),
		"the root of ours": newAuthority(t).cert,
	} {
		refused(t, ask(a, pods, c, "admin", "system:masters"), 401, metav1.StatusReasonUnauthorized, "Unauthorized")
		refused(t, ask(a, "/openapi/v2", c, "admin", "system:masters"), 401, metav1.StatusReasonUnauthorized, "Unauthorized")
		if asked := s.asked(); asked != nil {
			t.Errorf("%s: asked %q", name, asked)
		}
	}
	own := newAuthority(t)
	s.data = own.config()
	if err := a.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*x509.Certificate{
		"the former root's":  proxy,
		"of another name":    own.issue("admin", nil),
		"for servers":        own.issue("front-proxy-client", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
		"that has run out":   own.issue("front-proxy-client", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"that is not yet":    own.issue("front-proxy-client", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }),
		"that says no user ": own.issue("front-proxy-client", nil),
	} {
		who := "admin"
		if strings.Contains(name, "no user") {
			who = ""
		}
		refused(t, ask(a, pods, c, who, "system:masters"), 401, metav1.StatusReasonUnauthorized, "Unauthorized")
	}
	if w := ask(a, pods, own.issue("front-proxy-client", nil), "jane"); w.Code != 200 || w.Body.String() != "served" {
		t.Errorf("the API server: %d %s", w.Code, w.Body)
	}
	// HTTP/2 connections of nobody end.
	r := httptest.NewRequest("GET", pods, nil)
	r.ProtoMajor, r.TLS = 2, &tls.ConnectionState{}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if w.Code != 401 || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestTheAPIServerIsAskedWhoMayWhat: what is asked for is what the API server saw, with all that it said of the user.
func TestTheAPIServerIsAskedWhoMayWhat(t *testing.T) {
	a, s, proxy := setup(t)
	for path, want := range map[string]string{
		"/apis":                                 "jane get /apis",
		"/apis/g/v":                             "jane get /apis/g/v",
		"/openapi/v2":                           "jane get /openapi/v2",
		pods:                                    "jane list a/ pods.v.g/",
		"/apis/g/v/pods?watch=true":             "jane watch / pods.v.g/",
		pods + "/x":                             "jane get a/x pods.v.g/",
		pods + "/x/edges":                       "jane get a/x pods.v.g/edges",
		"/apis/g/v/namespaces/a":                "jane get a/a namespaces.v.g/",
		"/apis/g/v/namespaces/a/edges":          "jane list a/ edges.v.g/",
		"/apis/g/v/nodes/n/edges":               "jane get /n nodes.v.g/edges",
		pods + "?fieldSelector=metadata.name=x": "jane list a/x pods.v.g/",
	} {
		if w := ask(a, path, proxy, "jane"); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
		if got := s.asked(); fmt.Sprint(got) != "["+want+"]" {
			t.Errorf("%s: asked %q, want %q", path, got, want)
		}
	}
	r := httptest.NewRequest("DELETE", pods, nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{proxy}}
	for name, values := range map[string][]string{"X-Remote-User": {"bob"}, "X-Remote-Uid": {"u1"}, "X-Remote-Group": {"dev", "ops"}, "X-Remote-Extra-scopes%2fall": {"x", "y"}} {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	s.may = func(r authorizationv1.SubjectAccessReviewSpec) bool {
		if r.User != "bob" || r.UID != "u1" || strings.Join(r.Groups, " ") != "dev ops system:authenticated" || fmt.Sprint(r.Extra) != "map[scopes/all:[x y]]" || r.ResourceAttributes.Verb != "deletecollection" {
			t.Errorf("asked %+v", r)
		}
		return false
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	refused(t, w, 403, metav1.StatusReasonForbidden, `pods.g is forbidden: User "bob" cannot deletecollection resource "pods" in API group "g" in the namespace "a"`)
	s.may = func(r authorizationv1.SubjectAccessReviewSpec) bool {
		return strings.Join(r.Groups, " ") != "system:unauthenticated" // and no group more
	}
	refused(t, ask(a, "/openapi/v2", proxy, "system:anonymous", "system:unauthenticated"), 403, metav1.StatusReasonForbidden, `User "system:anonymous" cannot get path "/openapi/v2"`)
	s.asked()
	// Who may all is not asked about.
	if w := ask(a, pods, proxy, "root", "system:masters"); w.Code != 200 || s.asked() != nil {
		t.Errorf("a master: %d", w.Code)
	}
	s.err = errors.New("it is ending")
	refused(t, ask(a, pods, proxy, "mary"), 503, metav1.StatusReasonServiceUnavailable, "it is ending")
}

// TestAnswersAreRememberedForAWhile, yes and no, of each question apart; failures are not.
func TestAnswersAreRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s, proxy := setup(t)
		code := 0
		expect := func(what string, n int) {
			t.Helper()
			code = ask(a, pods, proxy, "jane").Code
			if got := len(s.asked()); got != n {
				t.Errorf("%s: asked %d times", what, got)
			}
		}
		expect("first", 1)
		time.Sleep(reviewMemory - time.Second)
		expect("soon", 0)
		s.may = func(authorizationv1.SubjectAccessReviewSpec) bool { return false }
		time.Sleep(2 * time.Second)
		expect("later", 1)
		if code != 403 {
			t.Errorf("a right that was taken away: %d", code)
		}
		expect("refused again", 0)
		if ask(a, pods, proxy, "jane", "dev"); len(s.asked()) != 1 {
			t.Error("with another group it is another question")
		}
		time.Sleep(2 * reviewMemory)
		s.err = errors.New("x")
		expect("failing", 1)
		expect("failing again", 1)
	})
}

// TestWhatIsUnderWayIsBounded: of requests and of reviews, while the API server does not answer these.
func TestWhatIsUnderWayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s, proxy := setup(t)
		s.wait = make(chan struct{})
		var mu sync.Mutex
		codes := map[int]int{}
		var all sync.WaitGroup
		for i := range maxUnderWay + 20 {
			all.Go(func() {
				w := ask(a, pods, proxy, fmt.Sprint("user", i))
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
				if w.Code == 429 {
					refused(t, w, 429, metav1.StatusReasonTooManyRequests, "ask again")
				}
			})
		}
		synctest.Wait()
		mu.Lock()
		if codes[429] != 20 || len(codes) != 1 {
			t.Errorf("at first %v", codes)
		}
		mu.Unlock()
		if w := ask(a, pods, nil, "nobody"); w.Code != 401 {
			t.Errorf("nobody meanwhile: %d", w.Code)
		}
		began := time.Now()
		all.Wait()
		if codes[503] != maxUnderWay || time.Since(began) != reviewTimeout {
			t.Errorf("then %v after %v", codes, time.Since(began))
		}
		close(s.wait)
		if w := ask(a, pods, proxy, "jane"); w.Code != 200 {
			t.Errorf("afterwards %d", w.Code)
		}
	})
}

// TestShown asks once for who may all, then for each namespace, as many as there may be.
func TestShown(t *testing.T) {
	a, s, proxy := setup(t)
	var many []string
	for i := range 2 * maxNamespaces {
		many = append(many, fmt.Sprintf("n%03d", i))
	}
	var names []string
	var seen []string
	var failed error
	a.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		shown, err := Shown(r.Context(), names)
		if failed = err; err != nil {
			return
		}
		seen = nil
		for _, n := range names {
			if shown(n) {
				seen = append(seen, n)
			}
		}
	})
	const edges = pods + "/x/edges"
	for _, c := range []struct {
		who   string
		in    []string // the namespaces in which they may
		of    []string // those that are asked about
		seen  string
		asked int
	}{
		{"all", []string{""}, []string{"", "a", "b"}, " a b", 2},
		{"own", []string{"a"}, []string{"", "a", "b"}, "a", 4},
		{"both", []string{"a", "b"}, []string{"a", "b", "c"}, "a b", 5},
		{"none", nil, []string{""}, "", 2},
		{"many", many, many, strings.Join(many[:maxNamespaces], " "), 2 + maxNamespaces},
	} {
		names = c.of
		s.may = func(r authorizationv1.SubjectAccessReviewSpec) bool {
			return r.ResourceAttributes.Name == "x" || slices.Contains(c.in, r.ResourceAttributes.Namespace)
		}
		if w := ask(a, edges, proxy, c.who); w.Code != 200 || failed != nil {
			t.Fatalf("%s: %d, %v", c.who, w.Code, failed)
		}
		asked := s.asked()
		if got := strings.Join(seen, " "); got != c.seen || len(asked) != c.asked {
			t.Errorf("%s: %.100q, asked %d times, want %.100q, %d", c.who, got, len(asked), c.seen, c.asked)
		}
		if want := c.who + " get / pods.v.g/edges"; asked[1] != want {
			t.Errorf("%s: asked %q, want %q", c.who, asked[1], want)
		}
	}
	names = []string{"a", ""}
	if ask(a, edges, proxy, "root", "system:masters"); strings.Join(seen, " ") != "a " || s.asked() != nil {
		t.Errorf("a master sees %q", seen)
	}
	if shown, err := Shown(t.Context(), []string{"a", ""}); err != nil || shown("a") || shown("") {
		t.Errorf("a context of no request: %v", err)
	}
}

// TestNamespacesThatCannotBeJudgedAreAnError, and no answer with some names left out.
func TestNamespacesThatCannotBeJudgedAreAnError(t *testing.T) {
	a, s, proxy := setup(t)
	var failed error
	a.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.set(func(s *apiServer) { s.err = errors.New("it is ending") })
		_, failed = Shown(r.Context(), []string{"a"})
	})
	if ask(a, pods+"/x/edges", proxy, "jane"); failed == nil || !strings.Contains(failed.Error(), "it is ending") {
		t.Errorf("failed with %v", failed)
	}
}
