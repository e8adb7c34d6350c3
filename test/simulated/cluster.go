// Package simulated is a Kubernetes whose control plane is real (API server, scheduler, volume binder, out of bin/kubebox) and whose nodes
// are kwok's: pods run and end at once, and a worker leaves the report that it is done. Everything is a process of the caller's own, at
// loopback, and ends with it.
//
// It knows Berth's kinds and its workers' report. The folder of the module is the one it is used in.
package simulated

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
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

// Cluster is a control plane, its simulated nodes and whatever else is run in it, as processes of this one.
type Cluster struct {
	Dir     string   // for all that it keeps; the caller's
	Root    string   // of the module
	Kinds   []string // folders of config/crd to install; none: all of them
	Audited bool     // the API server records what is written

	Config     *rest.Config // once it is started
	Kubeconfig string       // a file with the same
	procs      []*exec.Cmd
}

// startFor is how long the API server may take to start on a busy machine.
const startFor = 2 * time.Minute

// token is for a server on loopback that ends with this process.
const token = "bench"

// Start runs etcd and the API server out of bin/kubebox and installs the kinds.
func (c *Cluster) Start(ctx context.Context) error {
	ports, err := FreePorts(3)
	if err != nil {
		return err
	}
	etcd, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	key, tokens := filepath.Join(c.Dir, "sa.key"), filepath.Join(c.Dir, "tokens.csv")
	if err := writeKey(key); err != nil {
		return err
	}
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	if err := c.kubernetes("etcd", "--data-dir="+filepath.Join(c.Dir, "etcd"), "--listen-client-urls="+etcd,
		"--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--unsafe-no-fsync", "--log-level=error"); err != nil {
		return err
	}
	var audit []string
	if c.Audited {
		if audit, err = c.auditFlags(); err != nil {
			return err
		}
	}
	if err := c.kubernetes("kube-apiserver", append(audit, "--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+ports[2],
		"--cert-dir="+filepath.Join(c.Dir, "certs"), "--service-cluster-ip-range=10.96.0.0/24", "--token-auth-file="+tokens,
		"--authorization-mode=RBAC", "--service-account-issuer=https://bench", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--endpoint-reconciler-type=none")...); err != nil {
		return err
	}
	c.Config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: token, QPS: 1000, Burst: 2000,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its certificate is made at start, on this machine
	}
	c.Kubeconfig = filepath.Join(c.Dir, "kubeconfig")
	if err := c.writeKubeconfig(c.Kubeconfig); err != nil {
		return err
	}
	return c.install(ctx)
}

// install creates the CustomResourceDefinitions, which also shows that the server is up, and waits until they serve.
func (c *Cluster) install(ctx context.Context) error {
	kube, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	definitions := kube.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	folders := c.Kinds
	if len(folders) == 0 {
		folders = []string{"."}
	}
	for _, folder := range folders {
		if err := installAll(ctx, definitions, folder); err != nil {
			return err
		}
	}
	return nil
}

func installAll(ctx context.Context, definitions dynamic.ResourceInterface, folder string) error {
	return fs.WalkDir(crd.Files, folder, func(path string, entry fs.DirEntry, err error) error {
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

func (c *Cluster) writeKubeconfig(path string) error {
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"bench": {Server: c.Config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bench": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"bench": {Cluster: "bench", AuthInfo: "bench"}},
		CurrentContext: "bench",
	}, path)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func (c *Cluster) kubernetes(applet string, args ...string) error {
	return c.Run(applet+".log", nil, filepath.Join(c.Root, "bin", "kubebox"), append([]string{applet}, args...)...)
}

// Last returns the process that was started last.
func (c *Cluster) Last() *exec.Cmd { return c.procs[len(c.procs)-1] }

// Run starts a program that ends with the cluster. What it says is kept in a file of the cluster's folder.
func (c *Cluster) Run(logName string, env []string, binary string, args ...string) error {
	out, err := os.Create(filepath.Join(c.Dir, logName))
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

// Stop ends everything.
func (c *Cluster) Stop() {
	for i := len(c.procs) - 1; i >= 0; i-- {
		_ = c.procs[i].Process.Kill()
		_ = c.procs[i].Wait()
	}
}

// FreePorts returns ports of loopback that no program listens on.
func FreePorts(n int) ([]string, error) {
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
