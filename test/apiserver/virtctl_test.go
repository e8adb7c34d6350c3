//go:build apiserver

package apiserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/pkg/claim"
)

// TestVirtctl runs the scripts of testdata/virtctl: the real program against the API server with our kinds in it. What
// controllers would write into an object's status is written by the scripts, with kubectl.
func TestVirtctl(t *testing.T) {
	for name, provisioner := range map[string]string{"scripted": "rancher.io/local-path", "rook-ceph-block": "rook-ceph.rbd.csi.ceph.com"} {
		wait := storagev1.VolumeBindingWaitForFirstConsumer
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &wait}
		if name == "scripted" {
			class.Annotations = map[string]string{claim.DefaultClassAnnotation: "true"}
		}
		create(t, admin, class)
		eventually(t, "StorageProfile "+name, func() (bool, error) {
			p := &cdiv1.StorageProfile{}
			err := admin.Get(t.Context(), client.ObjectKey{Name: name}, p)
			return err == nil && len(p.Status.ClaimPropertySets) > 0, err
		})
	}
	t.Run("scripts", func(t *testing.T) { runScripts(t, "testdata/virtctl", baseCfg) }) // so that the classes outlive them
}

// TestVirtctlWithoutDataSide: what needs nothing but Kubernetes works on a cluster that has nothing else.
func TestVirtctlWithoutDataSide(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := t.TempDir()
	s, err := startServer(ctx, dir)
	defer s.stop()
	if err != nil {
		t.Fatal(errors.Join(err, tail(dir)))
	}
	t.Run("scripts", func(t *testing.T) { runScripts(t, "testdata/virtctl-plain", s.config) })
}

func runScripts(t *testing.T, dir string, config *rest.Config) {
	t.Helper()
	programs := t.TempDir()
	build(t, filepath.Join(programs, "virtctl"))
	box, err := kubebox()
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"kubectl": box, "kubectl-virt": "virtctl"} {
		if err := os.Symlink(program, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			namespace := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(e.WorkDir), "script-"), "_", "-")
			_, err := kube.CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			e.Setenv("PATH", programs+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, ".kubeconfig"))
			e.Setenv("NAMESPACE", namespace)
			e.Setenv("CONFIG", manifests)
			e.Setenv("HOME", e.WorkDir) // where kubectl keeps what it has learnt of the server
			return writeKubeconfig(e.Getenv("KUBECONFIG"), config, namespace)
		},
	})
}

func build(t *testing.T, program string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/berth-vm/berth/cmd/virtctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build virtctl: %v\n%s", err, out)
	}
}

func writeKubeconfig(path string, config *rest.Config, namespace string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["it"] = &clientcmdapi.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	c.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "admin", Namespace: namespace}
	c.CurrentContext = "it"
	return clientcmd.WriteToFile(*c, path)
}
