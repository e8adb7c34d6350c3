package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const server = "https://10.0.0.1:6443"

func open(t *testing.T, dir string, at time.Time) *Authority {
	t.Helper()
	a, err := Open(dir, server, at)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestIssuedCertificateIsTrustedForItsNames(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, now)
	if err := a.Issue(Identity{File: "api", Name: "kube-apiserver", IPs: []string{"10.0.0.1"}, DNS: []string{"kubernetes"}}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "api.crt"), filepath.Join(dir, "api.key"))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for _, name := range []string{"10.0.0.1", "kubernetes"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "elsewhere", CurrentTime: now}); err == nil {
		t.Error("the certificate is also good for a name it was not issued for")
	}
}

func TestClientCertificateServesNobody(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, now)
	if err := a.Issue(Identity{File: "admin", Name: "admin", Groups: []string{"system:masters"}}); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != server {
		t.Errorf("the kubeconfig's server is %s, want %s", config.Host, server)
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatalf("the kubeconfig's key does not fit its certificate: %v", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(leaf.Subject.Organization) != 1 || leaf.Subject.Organization[0] != "system:masters" {
		t.Errorf("groups are %v", leaf.Subject.Organization)
	}
	for _, usage := range leaf.ExtKeyUsage {
		if usage == x509.ExtKeyUsageServerAuth {
			t.Error("a client's certificate can be used by a server")
		}
	}
}

func TestOpenKeepsWhatExists(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, now)
	if err := first.Issue(Identity{File: "admin", Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	if err := first.ServiceAccounts(); err != nil {
		t.Fatal(err)
	}
	before := read(t, dir)
	second := open(t, dir, now.Add(time.Hour))
	if err := second.Issue(Identity{File: "admin", Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	if err := second.ServiceAccounts(); err != nil {
		t.Fatal(err)
	}
	if after := read(t, dir); after != before {
		t.Error("opening the authority again changed its files")
	}
}

func read(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"ca.crt", "ca.key", "admin.crt", "admin.kubeconfig", "sa.key", "sa.pub"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

func TestOpenSaysWhatToDo(t *testing.T) {
	old := t.TempDir()
	open(t, old, now)
	if _, err := Open(old, server, now.Add(validity)); err == nil || !strings.Contains(err.Error(), "kubebox down") {
		t.Errorf("with certificates that end: got %v", err)
	}
	damaged := t.TempDir()
	open(t, damaged, now)
	if err := os.WriteFile(filepath.Join(damaged, "ca.key"), []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(damaged, server, now); err == nil || !strings.Contains(err.Error(), "kubebox down") {
		t.Errorf("with a damaged key: got %v", err)
	}
}
