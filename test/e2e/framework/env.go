//go:build e2e

// Package framework is the base of the end-to-end tests: the cluster that E2E_KUBECONFIG names, a namespace for each test, waiting
// with a reason, pods that use claims, a file server pods can reach, and on failure everything that explains it. It knows
// Kubernetes but nothing of Berth's own objects, and it never touches another cluster.
package framework

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// KubeconfigVariable is the environment variable that names the cluster to test.
const KubeconfigVariable = "E2E_KUBECONFIG"

// An Env is one test's view of the cluster.
type Env struct {
	T         *testing.T
	Config    *rest.Config
	Client    kubernetes.Interface
	Dynamic   dynamic.Interface
	Namespace string

	outlives bool
}

// An Option changes the namespace a test gets.
type Option func(*corev1.Namespace)

// Restricted makes the namespace refuse pods that do not meet the restricted Pod Security standard.
func Restricted(ns *corev1.Namespace) {
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
}

// Kubeconfig is the file that names the cluster to test. A relative path is looked for in the working directory and above it, because
// tests run in the directory of their package and people call them from the top.
func Kubeconfig(t *testing.T) string {
	t.Helper()
	name := os.Getenv(KubeconfigVariable)
	if name == "" {
		t.Fatalf("set %s to the kubeconfig of the cluster to test; no other cluster is ever touched", KubeconfigVariable)
	}
	if filepath.IsAbs(name) {
		return name
	}
	start, err := os.Getwd()
	if err != nil {
		t.Fatalf("find working directory: %v", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("%s names %s, which is neither in %s nor above it", KubeconfigVariable, name, start)
		}
	}
}

// Config is how to reach the cluster that was named.
func Config(t *testing.T) *rest.Config {
	t.Helper()
	path := Kubeconfig(t)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	config.QPS, config.Burst = 50, 100
	return config
}

// New gives the test a namespace of its own, which is removed when the test ends. What is in it is printed first if the test failed.
func New(t *testing.T, options ...Option) *Env {
	t.Helper()
	if !left.awaited.Load() {
		t.Fatal("the package's TestMain must call framework.Main: what tests leave is waited for there")
	}
	takeTurn(t)
	config := Config(t)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(t.Name()), Labels: map[string]string{"berth.dev/e2e": "true"}}}
	for _, o := range options {
		o(ns)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatalf("make namespace: %v", err)
	}
	e := &Env{T: t, Config: config, Client: client, Dynamic: objects, Namespace: ns.Name}
	t.Cleanup(e.leave)
	// Pods are refused until the control plane has given the namespace its service account.
	e.Wait("the namespace's service account", time.Minute, func(ctx context.Context) (bool, string) {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, errorText(err)
	})
	return e
}

var unusual = regexp.MustCompile(`[^a-z0-9]+`)

func namespaceName(test string) string {
	name := strings.Trim(unusual.ReplaceAllString(strings.ToLower(strings.TrimPrefix(test, "Test")), "-"), "-")
	if len(name) > 40 {
		name = strings.Trim(name[:40], "-")
	}
	suffix := make([]byte, 3)
	_, _ = rand.Read(suffix) // never fails
	return "e2e-" + name + "-" + hex.EncodeToString(suffix)
}

// leave ends the test's namespace. That takes some seconds even if nothing is in it, so Main waits for all of them.
func (e *Env) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if e.T.Failed() {
		e.dump(ctx)
	}
	err := e.Client.CoreV1().Namespaces().Delete(ctx, e.Namespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return // the test has deleted it
	}
	if err != nil {
		e.T.Errorf("delete namespace %s: %v", e.Namespace, err)
		return
	}
	left.add(e)
}

func describeNamespace(ns *corev1.Namespace) string {
	var parts []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			parts = append(parts, c.Message)
		}
	}
	return strings.Join(parts, "; ")
}

// Context ends with the test.
func (e *Env) Context() context.Context {
	if e.outlives {
		return context.WithoutCancel(e.T.Context())
	}
	return e.T.Context()
}

// Outliving is the same for what a test has to undo when it has ended or was stopped, in a Cleanup: its context is over by then.
func (e *Env) Outliving() *Env {
	after := *e
	after.outlives = true
	return &after
}

// HostAddress is an address of the machine the test runs on that the cluster's pods can reach: the one this machine itself talks to the
// cluster from.
func (e *Env) HostAddress() string {
	e.T.Helper()
	server, err := url.Parse(e.Config.Host)
	if err != nil {
		e.T.Fatalf("parse API server's address %q: %v", e.Config.Host, err)
	}
	host := server.Hostname()
	conn, err := net.Dial("udp", net.JoinHostPort(host, "9")) // sends nothing: it only chooses a route
	if err != nil {
		e.T.Fatalf("find a route to %s: %v", host, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String()
}
