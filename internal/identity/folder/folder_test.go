package folder

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/identity/claim"
)

var web = Pod{Namespace: "shop", Name: "web-1", Account: "web", Owners: []claim.Owner{{Kind: "Deployment", Name: "web"}}, DNSNames: []string{"web.shop.svc"}}

func made(t *testing.T, path string, now time.Time) *Folder {
	t.Helper()
	f, err := Make(path, "", "cluster.local", now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAPodProvesWhoItIs(t *testing.T) {
	now := time.Now()
	dir := filepath.Join(t.TempDir(), "new")
	path, id, err := made(t, dir, now).Pod(web, time.Hour, now)
	if err != nil || id.String() != "spiffe://cluster.local/ns/shop/sa/web" || path != filepath.Join(dir, "shop", "web-1.pem") {
		t.Fatalf("%s %s %v", path, id, err)
	}
	if _, id, err = made(t, dir, now).Node("n1", time.Hour, now); err != nil || id.String() != "spiffe://cluster.local/node/n1" {
		t.Fatalf("%s %v", id, err)
	}
	for name, mode := range map[string]os.FileMode{"shop/web-1.pem": 0o600, "authority/tls.key": 0o600, "ca.crt": 0o644, "authority": os.ModeDir | 0o700} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	s, err := Open(dir, "shop", "web-1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	own := s.Identity()
	leaf := own.Certificate.Leaf
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if got, err := own.Verify([]*x509.Certificate{leaf}, usage); err != nil || got != own.ID {
			t.Errorf("%v: %v, %v", usage, got, err)
		}
	}
	claims, err := claim.Of(leaf)
	if err != nil || !reflect.DeepEqual(claims, claim.Claims{Pod: "web-1", Owners: web.Owners}) || !reflect.DeepEqual(leaf.DNSNames, web.DNSNames) {
		t.Errorf("%+v %v %v", claims, err, leaf.DNSNames)
	}
	if end := leaf.NotAfter.Sub(now); end > time.Hour || end < time.Hour-2*time.Second {
		t.Errorf("it ends after %v", end)
	}
}

func TestARenewedIdentityIsUsed(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	f := made(t, dir, now)
	if _, _, err := f.Pod(web, time.Hour, now); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := Open(dir, "shop", "web-1", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	first := s.Identity()
	again := func() { s.looked = time.Time{} } // a second has passed
	again()
	if s.Identity() != first {
		t.Error("nothing changed, and it is another one")
	}
	if err := os.WriteFile(filepath.Join(dir, "shop", "web-1.pem"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again()
		if s.Identity() != first {
			t.Error("a broken file took the identity away")
		}
	}
	if n := strings.Count(log.String(), "the identity stays as it was"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	if _, _, err := f.Pod(web, 2*time.Hour, now); err != nil {
		t.Fatal(err)
	}
	again()
	if next := s.Identity(); next == first || next.ID != first.ID {
		t.Error("the renewed certificate is not used")
	}
	other := web
	other.Account = "root"
	if _, _, err := f.Pod(other, 2*time.Hour, now); err != nil {
		t.Fatal(err)
	}
	again()
	if s.Identity().ID.String() != "spiffe://cluster.local/ns/shop/sa/root" || !strings.Contains(log.String(), "another one now") {
		t.Error(log.String())
	}
}

func TestRootsAreReplacedInTime(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	if _, _, err := made(t, dir, now).Pod(web, 24*time.Hour, now); err != nil {
		t.Fatal(err)
	}
	before, err := Open(dir, "shop", "web-1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	later := now.Add(250 * 24 * time.Hour)
	made(t, dir, later)
	both, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || bytes.Equal(first, both) || !bytes.HasPrefix(both, first) {
		t.Errorf("the next root is not trusted beside the first: %v", err)
	}
	if before.Identity().ID.IsZero() {
		t.Error("no identity")
	}
}

func TestMistakes(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	f := made(t, dir, now)
	for _, p := range []Pod{{}, {Namespace: "..", Name: "a", Account: "a"}, {Namespace: "a", Name: "../b", Account: "a"}, {Namespace: "@node", Name: "a", Account: "a"}, {Namespace: "a", Name: "b", Account: "c/d"}} {
		if path, _, err := f.Pod(p, time.Hour, now); err == nil {
			t.Errorf("%+v got %s", p, path)
		}
	}
	if _, _, err := f.Node("../a", time.Hour, now); err == nil {
		t.Error("a node got a file elsewhere")
	}
	if _, err := Make(dir, "other.example", "", now); err == nil || !strings.Contains(err.Error(), `has the trust domain "cluster.local"`) {
		t.Error(err)
	}
	if _, err := Make(filepath.Join(dir, "x"), "Upper", "", now); err == nil {
		t.Error("a trust domain of upper case was made")
	}
	if _, err := Open(dir, "shop", "web-1", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a pod without a file has an identity")
	}
	if err := os.WriteFile(filepath.Join(dir, "authority", "tls.key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(dir, "", "", now); err == nil || strings.Contains(err.Error(), "PRIVATE") {
		t.Error(err)
	}
}
