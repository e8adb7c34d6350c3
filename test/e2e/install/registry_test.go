//go:build e2e && release

package install

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// asked notes what containerd asks a registry for.
type asked struct {
	next http.Handler
	mu   sync.Mutex
	by   []string
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.UserAgent(), "containerd/") {
		a.mu.Lock()
		a.by = append(a.by, r.URL.Path)
		a.mu.Unlock()
	}
	a.next.ServeHTTP(w, r)
}

func (a *asked) has(part string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, path := range a.by {
		if strings.Contains(path, part) {
			return true
		}
	}
	return false
}

// TestInstallFromRegistry does what docs/install.md says: the release of DIST is pushed to a registry and installed from there, on a cluster without
// Berth. `make install-check` runs it, with a release of this commit.
func TestInstallFromRegistry(t *testing.T) {
	s := newSite(t)
	if s.isNamespace("berth") {
		t.Fatal("this test needs a cluster without Berth, and there is namespace berth")
	}
	dist, version := os.Getenv("DIST"), os.Getenv("VERSION")
	images := &asked{next: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir())))}
	url, authority := s.ServeTLS(images)
	host := strings.TrimPrefix(url, "https://")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(authority), 0o600); err != nil {
		t.Fatal(err)
	}
	at := host + "/team/berth"
	if out, err := s.command("make", "push", "REGISTRY="+at, "CA="+ca, "DIST="+dist); err != nil || !strings.Contains(out, at+"/berth-launcher:"+version) {
		t.Fatalf("make push: %v\n%s", err, out)
	}
	framework.Kubebox(t, "trust", host, ca)
	after := &site{s.Outliving()}
	t.Cleanup(after.leaveNothing)
	if out, err := s.command("make", "install", "REGISTRY="+at, "DIST="+dist, "KUBECONFIG="+framework.Kubeconfig(t)); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	for _, namespace := range []string{"berth", "berth-node"} {
		s.cameFrom(at, namespace)
	}
	s.waitField("cdi", "cdi", ".status.observedVersion", version)

	s.kubectl(blank("data"), "apply", "-f", "-")
	s.waitField("dv", "data", ".status.phase", "Succeeded")
	// the nodes of this cluster have no KVM
	s.kubectl("", "-n", "berth", "patch", "deployment", "berth-controller", "--type=json",
		"-p", `[{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["--allow-emulation"]}]`)
	s.kubectl("", "-n", "berth", "rollout", "status", "deployment", "--timeout=5m")
	s.kubectl(machine, "apply", "-f", "-")
	s.waitField("vm", "kept", ".status.printableStatus", "Running")
	if image := s.launcher().Spec.Containers[0].Image; !strings.HasPrefix(image, at+"/berth-launcher@sha256:") {
		t.Errorf("the launcher's image is %s", image)
	}
	for _, name := range []string{"berth", "berth-launcher"} {
		if !images.has("/v2/team/berth/" + name + "/blobs/") {
			t.Errorf("no node has asked the registry for what is in %s: %v", name, images.by)
		}
	}
}

// cameFrom checks that every pod of a namespace runs, with images of that registry.
func (s *site) cameFrom(at, namespace string) {
	s.T.Helper()
	s.Wait("the pods of "+namespace+" to run", patience, func(ctx context.Context) (bool, string) {
		pods, err := s.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return false, "there are none"
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodRunning {
				return false, pod.Name + " is " + string(pod.Status.Phase)
			}
			for _, c := range pod.Spec.Containers {
				if !strings.HasPrefix(c.Image, at+"/berth@sha256:") {
					s.T.Fatalf("container %s of %s has image %s", c.Name, pod.Name, c.Image)
				}
			}
		}
		return true, ""
	})
}

// leaveNothing leaves the cluster as the test found it.
func (s *site) leaveNothing() {
	if out, err := s.command("bin/kubectl", "--kubeconfig", framework.Kubeconfig(s.T), "-n", s.Namespace, "delete", "vm,vmi,dv", "--all", "--timeout=2m"); err != nil {
		s.T.Errorf("delete what was made: %v\n%s", err, out)
	}
	if out, err := s.virtctl("uninstall"); err != nil || s.isNamespace("berth") {
		s.T.Errorf("virtctl uninstall: %v\n%s", err, out)
	}
}
