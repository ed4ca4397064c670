package process

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func insidePage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Text(w, http.StatusOK, "inside") })
}

// asked is a request for a page, as the server sees it.
func asked(from, to, host string, fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://"+host+"/config", nil)
	r.RemoteAddr = from
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	if to == "" {
		return r
	}
	local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to))
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
}

func TestInsideIsNeitherForOthersNorForProxiesNorForWebPages(t *testing.T) {
	h := Access{}.Restrict(insidePage())
	const me, here = "127.0.0.1:5", "127.0.0.1:19080"
	for _, tt := range []struct {
		name    string
		request *http.Request
		status  int
	}{
		{"loopback", asked(me, here, "localhost:19080"), http.StatusOK},
		{"loopback, IPv6", asked("[::1]:5", "[::1]:19080", "[::1]:19080"), http.StatusOK},
		{"loopback, mapped", asked("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:19080", "127.0.0.1:19080"), http.StatusOK},
		{"a browser's own", asked(me, here, "localhost:19080", "Sec-Fetch-Site", "none"), http.StatusOK},
		{"a host that is a name", asked(me, here, "evil.example:19080"), http.StatusForbidden},
		{"any address", asked(me, here, "0.0.0.0:19080"), http.StatusForbidden},
		{"any address without a port", asked(me, here, "0.0.0.0"), http.StatusForbidden},
		{"any address, short", asked(me, here, "0:19080"), http.StatusForbidden},
		{"any address, hexadecimal", asked(me, here, "0x0:19080"), http.StatusForbidden},
		{"any address, octal", asked(me, here, "00.00.00.00:19080"), http.StatusForbidden},
		{"any address, IPv6", asked(me, here, "[::]:19080"), http.StatusForbidden},
		{"any address, mapped", asked(me, here, "[::ffff:0.0.0.0]:19080"), http.StatusForbidden},
		{"an address in 0.0.0.0/8", asked(me, here, "0.0.0.1:19080"), http.StatusForbidden},
		{"loopback, decimal", asked(me, here, "2130706433:19080"), http.StatusForbidden},
		{"loopback, short", asked(me, here, "127.1:19080"), http.StatusForbidden},
		{"an address of another machine", asked(me, here, "192.0.2.1:19080"), http.StatusForbidden},
		{"no host", asked(me, here, ""), http.StatusForbidden},
		{"another loopback address", asked(me, here, "127.0.0.2:19080"), http.StatusOK},
		{"another pod", asked("10.244.0.9:5", "10.244.0.8:19080", "10.244.0.8:19080"), http.StatusForbidden},
		{"the pod's own address", asked("10.244.0.8:5", "10.244.0.8:19080", "10.244.0.8:19080"), http.StatusForbidden},
		{"a forged source", asked(me, "10.244.0.8:19080", "10.244.0.8:19080"), http.StatusForbidden},
		{"no source", asked("", here, "localhost"), http.StatusForbidden},
		{"no local address", asked(me, "", "localhost"), http.StatusForbidden},
		{"another web page", asked(me, here, "localhost", "Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		{"a page of the same site", asked(me, here, "localhost", "Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		{"its own page", asked(me, here, "localhost", "Sec-Fetch-Site", "same-origin"), http.StatusOK},
		{"another web page's script", asked(me, here, "localhost", "Origin", "http://evil.example"), http.StatusForbidden},
		{"Via", asked(me, here, "localhost", "Via", "1.1 x"), http.StatusForbidden},
		{"Forwarded", asked(me, here, "localhost", "Forwarded", "for=1.2.3.4"), http.StatusForbidden},
		{"X-Forwarded-For", asked(me, here, "localhost", "X-Forwarded-For", "1.2.3.4"), http.StatusForbidden},
		{"X-Forwarded-User", asked(me, here, "localhost", "X-Forwarded-User", "a"), http.StatusForbidden},
		{"X-Forwarded-For, empty", asked(me, here, "localhost", "X-Forwarded-For", ""), http.StatusForbidden},
		{"X-Real-IP", asked(me, here, "localhost", "X-Real-IP", "1.2.3.4"), http.StatusForbidden},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, tt.request)
		if w.Code != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, w.Code, tt.status)
		}
	}
}

func TestTokenOpensWhatIsNotForEverybody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	a := Access{TokenFile: file}
	if err := a.Check(); err == nil {
		t.Error("a file that is not there is no mistake")
	}
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get := func(fields ...string) int {
		w := httptest.NewRecorder()
		a.Restrict(insidePage()).ServeHTTP(w, asked("10.0.0.9:5", "10.0.0.8:15000", "gateway.example", fields...))
		return w.Code
	}
	write(" \n")
	if err := a.Check(); err == nil {
		t.Error("an empty token is no mistake")
	}
	if got := get("Authorization", "Bearer "); got != http.StatusInternalServerError {
		t.Errorf("an empty token opens: %d", got)
	}
	write(strings.Repeat("x", adminTokenSize+1))
	if err := a.Check(); err == nil {
		t.Error("a token that is too long is no mistake")
	}
	write("first\n")
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	for shown, want := range map[string]int{
		"Bearer first": 200, "bearer first": 200, "Bearer firs": 401, "Bearer first!": 401, "Basic first": 401, "first": 401, "": 401, "Bearer": 401,
	} {
		if got := get("Authorization", shown); got != want {
			t.Errorf("%q: %d, want %d", shown, got, want)
		}
	}
	write("second\n")
	if got := get("Authorization", "Bearer first"); got != 401 {
		t.Errorf("the token before: %d", got)
	}
	if got := get("Authorization", "Bearer second"); got != 200 {
		t.Errorf("the new token: %d", got)
	}
	// Being on the machine is not enough any more.
	w := httptest.NewRecorder()
	a.Restrict(insidePage()).ServeHTTP(w, asked("127.0.0.1:5", "127.0.0.1:15000", "localhost"))
	if w.Code != 401 {
		t.Errorf("without a token from the machine: %d", w.Code)
	}
}
