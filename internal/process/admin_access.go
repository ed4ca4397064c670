package process

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/flags"
)

// Access decides who may see the restricted pages of an admin endpoint: those that show internal state, or cost
// processor time. The zero value allows only clients on the machine.
type Access struct {
	// TokenFile holds the token that opens these pages, to everyone who shows it and to nobody else; empty means no
	// token. It is read again for each request, so that it can be replaced.
	TokenFile string
}

// adminTokenSize bounds the file, in bytes.
const adminTokenSize = 4 << 10

// Check fails if nobody could ever get in.
func (a Access) Check() error {
	if a.TokenFile == "" {
		return nil
	}
	if _, err := a.token(); err != nil {
		return flags.Errorf("--admin-token-file: %w", err)
	}
	return nil
}

func (a Access) token() (string, error) {
	f, err := os.Open(a.TokenFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, adminTokenSize+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	switch {
	case len(data) > adminTokenSize:
		return "", fmt.Errorf("%s is larger than %d bytes", a.TokenFile, adminTokenSize)
	case token == "":
		return "", errors.New(a.TokenFile + " is empty")
	}
	return token, nil
}

// Restrict answers only clients that show the token. Without a token, it answers only requests from the machine itself
// (in a pod, by port-forwarding) that come neither through a proxy nor from a web page.
func (a Access) Restrict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("cache-control", "no-store")
		if a.TokenFile == "" {
			if why := notInside(r); why != "" {
				Text(w, http.StatusForbidden, why+"\n")
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		token, err := a.token()
		if err != nil {
			Text(w, http.StatusInternalServerError, "the token cannot be read: see --admin-token-file\n")
			return
		}
		scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		// Hashed, so that the time it takes does not tell the length.
		want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(shown)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			w.Header().Set("www-authenticate", "Bearer")
			Text(w, http.StatusUnauthorized, "send the token of --admin-token-file (Authorization: Bearer)\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// relayed are fields that proxies add. The source address of a proxy says nothing about its client. All fields that
// begin with X-Forwarded- count, too.
var relayed = []string{"Via", "Weir-Via", "Forwarded", "X-Real-Ip"}

// notInside returns why a request does not come from the machine itself; empty if it does.
func notInside(r *http.Request) string {
	local := func(a netip.AddrPort, err error) bool { return err == nil && a.Addr().Unmap().IsLoopback() }
	to, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !local(netip.ParseAddrPort(r.RemoteAddr)) || to == nil || !local(netip.ParseAddrPort(to.String())) {
		return "only local access is allowed; in a cluster, use kubectl port-forward, elsewhere ask on the machine itself or set --admin-token-file"
	}
	if !loopbackHost(r.Host) {
		return "use 127.0.0.1, [::1] or localhost as the host"
	}
	for name := range r.Header {
		if slices.Contains(relayed, name) || strings.HasPrefix(name, "X-Forwarded-") {
			return "requests that came through a proxy are not allowed (" + name + ")"
		}
	}
	if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "none" && from != "same-origin" || r.Header.Get("Origin") != "" {
		return "requests from other web pages are not allowed"
	}
	return ""
}

// loopbackHost reports whether a request names this machine, by a loopback address or as localhost. A web page may have
// its own name resolve to the loopback address, and systems connect to this machine for an unspecified address (0.0.0.0,
// [::]), about which browsers' rules for pages of other origins say less.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
