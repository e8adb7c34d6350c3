//go:build apiserver

// Package apiserver holds the tests that need a real API server and nothing else: no kubelet, no controller manager, no
// privileges. They run etcd and kube-apiserver out of bin/kubebox on loopback, install what users install, and run our
// controllers and webhooks in the test process.
package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	startTimeout = 2 * time.Minute
	adminToken   = "admin"
)

// server is etcd and an API server.
type server struct {
	config *rest.Config // of a cluster administrator
	procs  []*exec.Cmd
}

// startServer runs both in dir and waits until the API server is ready. The caller stops what it returns, also when it
// returns an error.
func startServer(ctx context.Context, dir string) (*server, error) {
	s := &server{}
	ports, err := freePorts(3)
	if err != nil {
		return s, err
	}
	etcd := "http://127.0.0.1:" + strconv.Itoa(ports[0])
	peer := "http://127.0.0.1:" + strconv.Itoa(ports[1])
	if err := s.run(dir, "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls="+etcd,
		"--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--unsafe-no-fsync", "--log-level=error"); err != nil {
		return s, err
	}
	key, err := serviceAccountKey(dir)
	if err != nil {
		return s, err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(adminToken+",admin,admin,system:masters\n"), 0o600); err != nil {
		return s, err
	}
	if err := s.run(dir, "kube-apiserver", "--etcd-servers="+etcd, "--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(ports[2]), "--cert-dir="+filepath.Join(dir, "certs"),
		"--service-cluster-ip-range=10.96.0.0/24", "--authorization-mode=RBAC", "--token-auth-file="+tokens,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none"); err != nil {
		return s, err
	}
	s.config = &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(ports[2]), BearerToken: adminToken, QPS: 200, Burst: 400,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its certificate is made at start, on this machine
	}
	return s, s.waitReady(ctx)
}

func (s *server) run(dir, applet string, args ...string) error {
	box, err := kubebox()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, applet+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(box, append([]string{applet}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // even if the test is killed
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", applet, err)
	}
	s.procs = append(s.procs, cmd)
	return nil
}

func (s *server) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		for _, p := range s.procs {
			if p.Process.Signal(syscall.Signal(0)) != nil {
				return false, errors.New(p.Args[1] + " ended")
			}
		}
		var code int
		client.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code)
		return code == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	return nil
}

func (s *server) stop() {
	for i := len(s.procs) - 1; i >= 0; i-- {
		_ = s.procs[i].Process.Kill()
		_ = s.procs[i].Wait()
	}
}

// kubebox finds the program that holds the applets. That it is not there is a failure: nothing here can run without it.
func kubebox() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	box := filepath.Join(root, "bin", "kubebox")
	if _, err := os.Stat(box); err != nil {
		return "", fmt.Errorf("%w; run `make bin/kubebox`", err)
	}
	return box, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the working directory")
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that no two are the same
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func serviceAccountKey(dir string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "service-account.key")
	return path, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
