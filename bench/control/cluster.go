package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/config/crd"
)

// cluster is a control plane, its simulated nodes and the controller, as processes of this one.
type cluster struct {
	dir        string
	config     *rest.Config
	kubeconfig string
	procs      []*exec.Cmd
}

// startFor is how long the API server may take to start on a busy machine.
const startFor = 2 * time.Minute

// token is for a server on loopback that ends with this process.
const token = "bench"

// start runs etcd and the API server out of bin/kubebox and installs the kinds.
func (c *cluster) start(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	etcd, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	key, tokens := filepath.Join(c.dir, "sa.key"), filepath.Join(c.dir, "tokens.csv")
	if err := writeKey(key); err != nil {
		return err
	}
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	box := filepath.Join("bin", "kubebox")
	if err := c.run(box, "etcd", "--data-dir="+filepath.Join(c.dir, "etcd"), "--listen-client-urls="+etcd,
		"--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--unsafe-no-fsync", "--log-level=error"); err != nil {
		return err
	}
	if err := c.run(box, "kube-apiserver", "--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+ports[2],
		"--cert-dir="+filepath.Join(c.dir, "certs"), "--service-cluster-ip-range=10.96.0.0/24", "--token-auth-file="+tokens,
		"--authorization-mode=RBAC", "--service-account-issuer=https://bench", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--endpoint-reconciler-type=none"); err != nil {
		return err
	}
	c.config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: token, QPS: 1000, Burst: 2000,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its certificate is made at start, on this machine
	}
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	if err := c.writeKubeconfig(c.kubeconfig); err != nil {
		return err
	}
	return c.install(ctx)
}

// install creates the CustomResourceDefinitions, which also shows that the server is up, and waits until they serve.
func (c *cluster) install(ctx context.Context) error {
	kube, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	definitions := kube.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	return fs.WalkDir(crd.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := crd.Files.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		var last error
		err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, startFor, true, func(ctx context.Context) (bool, error) {
			_, last = definitions.Create(ctx, u, metav1.CreateOptions{})
			return last == nil || apierrors.IsAlreadyExists(last), nil
		})
		if err != nil {
			return fmt.Errorf("install %s: %w (%w)", path, err, last)
		}
		return nil
	})
}

func (c *cluster) writeKubeconfig(path string) error {
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"bench": {Server: c.config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bench": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"bench": {Cluster: "bench", AuthInfo: "bench"}},
		CurrentContext: "bench",
	}, path)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func (c *cluster) run(binary, applet string, args ...string) error {
	return c.runLogged(filepath.Join(c.dir, applet+".log"), nil, binary, append([]string{applet}, args...)...)
}

// last is the process that was started last.
func (c *cluster) last() *exec.Cmd { return c.procs[len(c.procs)-1] }

func (c *cluster) runLogged(logPath string, env []string, binary string, args ...string) error {
	out, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer out.Close() // the process has its own handle
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", binary, err)
	}
	c.procs = append(c.procs, cmd)
	return nil
}

func (c *cluster) stop() {
	for i := len(c.procs) - 1; i >= 0; i-- {
		_ = c.procs[i].Process.Kill()
		_ = c.procs[i].Wait()
	}
}

func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all at the end, so that no two are the same
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// httpClient takes any certificate: servers here are of this process, on loopback, and make their own.
var httpClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above
