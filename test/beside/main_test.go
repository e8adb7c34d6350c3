//go:build peers

// Package beside runs KubeVirt's own virt-controller, as its module has it, over Berth's data side: a real API server, scheduler and volume
// binder, and nodes that are simulated, so no guest runs. `make beside-kubevirt` runs it; it is no part of `make test`, since KubeVirt
// takes many minutes to compile. test/apiserver has what virt-controller reads of a volume, and is.
package beside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/test/simulated"
)

const (
	team = "team"
	// patience is for the slowest machine that the test is worth running on.
	patience = 10 * time.Minute
)

// Shared by all tests, made by TestMain.
var (
	kube client.Client
	dir  string // with the programs' logs
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "beside:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var err error
	if dir, err = os.MkdirTemp("", "berth-beside-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	c := &simulated.Cluster{Dir: dir, Root: filepath.Join("..", ".."), Kinds: []string{"cdi"}}
	defer c.Stop()
	if err := start(ctx, c); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// start brings up the cluster with the data side alone, and KubeVirt's controller over it.
func start(ctx context.Context, c *simulated.Cluster) error {
	for _, p := range []struct{ name, module, main string }{
		{"berth", ".", "./cmd/controller"},
		{"virt-controller", filepath.Join("hack", "kubevirt"), "kubevirt.io/kubevirt/cmd/virt-controller"},
		{"kinds", filepath.Join("hack", "kubevirt"), "./kinds"},
	} {
		if err := c.Build(ctx, filepath.Join(dir, p.name), p.module, p.main); err != nil {
			return err
		}
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if kube, err = client.New(c.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	kinds, err := exec.CommandContext(ctx, filepath.Join(dir, "kinds")).Output()
	if err != nil {
		return fmt.Errorf("print KubeVirt's kinds: %w", err)
	}
	if err := createAll(ctx, string(kinds)); err != nil {
		return err
	}
	if err := createAll(ctx, snapshotKinds()+setting); err != nil {
		return err
	}
	if err := c.StartNodes(ctx); err != nil {
		return err
	}
	ports, err := simulated.FreePorts(3)
	if err != nil {
		return err
	}
	if err := c.Run("berth.log", nil, filepath.Join(dir, "berth"), "--kubeconfig="+c.Kubeconfig, "--controllers=data", "--worker-image=none",
		"--namespace=berth", "--leader-elect=false", "--metrics-address=127.0.0.1:"+ports[0], "--health-address=127.0.0.1:"+ports[1]); err != nil {
		return err
	}
	return c.Run("virt-controller.log", nil, filepath.Join(dir, "virt-controller"), "--kubeconfig="+c.Kubeconfig, "--listen=127.0.0.1",
		"--port="+ports[2], "--launcher-image=none")
}

// createAll makes objects in their order, and waits for kinds that are not served yet.
func createAll(ctx context.Context, text string) error {
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read objects: %w", err)
		}
		if u.Object == nil {
			continue
		}
		var last error
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			last = kube.Create(ctx, u)
			return last == nil || !meta.IsNoMatchError(last) && !apierrors.IsNotFound(last), nil
		})
		if err = errors.Join(err, last); err != nil {
			return fmt.Errorf("create %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

// object reads YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := sigsyaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return u
}

// eventually waits for a fact of the cluster, and shows the programs' last words if it does not come.
func eventually(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		ok, err := is()
		last = err
		return ok, nil
	})
	if err == nil {
		return
	}
	for _, name := range []string{"berth.log", "virt-controller.log"} {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		t.Logf("%s: %s", name, text[max(0, len(text)-4000):])
	}
	t.Fatalf("%s: %v (%v)", what, err, last)
}

// pods of the namespace that a label says something of.
func pods(t *testing.T, label, value string) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	if err := kube.List(t.Context(), &all, client.InNamespace(team), client.MatchingLabels{label: value}); err != nil {
		t.Fatal(err)
	}
	return all.Items
}
