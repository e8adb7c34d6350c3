//go:build host

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
)

// TestKilledQCOW2 is TestKilled with images that qemu-img made.
func TestKilledQCOW2(t *testing.T) {
	raw := disk(80 << 20)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "raw"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"plain": nil, "compressed": {"-c"}} {
		path := filepath.Join(dir, name)
		args = append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, args...), filepath.Join(dir, "raw"), path)
		if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img: %v\n%s", err, out)
		}
		image, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		overHTTP := func(host string) task.Source { return task.Source{HTTP: &task.HTTP{URL: "http://" + host}} }
		killed(t, name, len(image), object(t, image).Host, overHTTP, raw)
		killed(t, name+".gz", len(gz(image)), object(t, gz(image)).Host, overHTTP, raw)
	}
}

// TestKilledClone kills the target's worker of a clone between two.
func TestKilledClone(t *testing.T) {
	raw := disk(80 << 20)
	from, tls := filepath.Join(t.TempDir(), "disk.img"), certificates(t)
	if err := os.WriteFile(from, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	addr := serveProcess(t, task.Serve{Version: task.Version, Volume: "ns/from", Path: from, Content: task.Disk,
		Listen: "127.0.0.1:0", TLSDir: tls})
	v := newValve(t, addr)
	k := task.Task{Version: task.Version, Volume: "ns/vol",
		Source: task.Source{Peer: &task.Peer{URL: "https://" + v.Addr().String(), TLSDir: tls}},
		Target: task.Target{Path: filepath.Join(t.TempDir(), "disk.img"), Content: task.Disk}}
	v.hold(16 << 20) // of less than 30 MiB on the wire
	full := v.full
	cmd, _ := start(t, k)
	<-full
	waitForNote(t, k.Target.Path, true, func() {})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	v.hold(1 << 62)
	if r := finishes(t, k, raw); r.Resumed == 0 || r.Read > int64(len(raw))-r.Resumed {
		t.Errorf("report %+v", r)
	}
}

// serveProcess runs `worker serve` until the test ends and returns where it listens.
func serveProcess(t *testing.T, s task.Serve) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "serve.json")
	b, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(worker, "serve", "--task", path)
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("worker serve: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`at (\S+)\n`).FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("worker serve says %q", line)
	}
	return found[1]
}

// certificates makes a directory that both ends of a clone can use.
func certificates(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, b := range map[string][]byte{"tls.crt": cert, "ca.crt": cert,
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
