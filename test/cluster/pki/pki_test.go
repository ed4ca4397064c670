package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"testing"
)

func TestIssuedCertificatesAreVouchedFor(t *testing.T) {
	ca, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue("admin", []string{"system:masters"}, []string{"localhost"}, net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Public, pair.Private)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca.Certificate()) {
		t.Fatal("the authority's certificate is no PEM")
	}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		options := x509.VerifyOptions{DNSName: host, Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := certificate.Leaf.Verify(options); err != nil {
			t.Errorf("as a server %s: %v", host, err)
		}
	}
	if _, err := certificate.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("as a client: %v", err)
	}
	subject := certificate.Leaf.Subject
	if subject.CommonName != "admin" || len(subject.Organization) != 1 || subject.Organization[0] != "system:masters" {
		t.Errorf("subject %s", subject)
	}
}

func TestAKubeconfigHoldsAllThatAClientNeeds(t *testing.T) {
	ca, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	user, err := ca.Issue("admin", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := ca.Kubeconfig("https://127.0.0.1:1", user)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Clusters) != 1 || len(config.Users) != 1 {
		t.Fatalf("got %s", text)
	}
	cluster, identity := config.Clusters[0].Cluster, config.Users[0].User
	if cluster.Server != "https://127.0.0.1:1" || string(cluster.CA) != string(ca.Certificate()) {
		t.Errorf("cluster %+v", cluster)
	}
	if _, err := tls.X509KeyPair(identity.Certificate, identity.Key); err != nil {
		t.Error(err)
	}
}
