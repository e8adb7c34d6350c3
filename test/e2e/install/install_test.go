//go:build e2e

// Package install tests what an administrator does with Berth itself: install it again over what runs, and take it off. All other tests
// must be over by then, so its tests are in a package of their own and run one after the other.
package install

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m) }

const patience = 3 * time.Minute

// site is a cluster with Berth on it, as its administrator sees it.
type site struct{ *framework.Env }

func newSite(t *testing.T) *site { return &site{framework.New(t)} }

// virtctl runs the program and returns its output.
func (s *site) virtctl(args ...string) (string, error) {
	return s.command("bin/virtctl", append([]string{"--kubeconfig", framework.Kubeconfig(s.T)}, args...)...)
}

func (s *site) kubectl(stdin string, args ...string) string {
	s.T.Helper()
	cmd := s.in("bin/kubectl", append([]string{"--kubeconfig", framework.Kubeconfig(s.T), "-n", s.Namespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.T.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// install runs the commands of the documentation, in this tree.
func (s *site) install() {
	s.T.Helper()
	if out, err := s.command("make", "install-tree", "OVERLAY=config/kubebox", "KUBECONFIG="+framework.Kubeconfig(s.T)); err != nil {
		s.T.Fatalf("make install: %v\n%s", err, out)
	}
}

func (s *site) command(name string, args ...string) (string, error) {
	var said bytes.Buffer
	cmd := s.in(name, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	return said.String(), err
}

// in is a command in the top directory of the project.
func (s *site) in(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(s.Context()), name, args...)
	cmd.Dir = "../../.."
	return cmd
}

var (
	volumes     = schema.GroupVersionResource{Group: "cdi.kubevirt.io", Version: "v1beta1", Resource: "datavolumes"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// waitField waits until kubectl prints that value with -o jsonpath.
func (s *site) waitField(kind, name, path, want string) {
	s.T.Helper()
	s.Wait(fmt.Sprintf("%s %s to have %s=%s", kind, name, path, want), patience, func(context.Context) (bool, string) {
		out, err := s.command("bin/kubectl", "--kubeconfig", framework.Kubeconfig(s.T), "-n", s.Namespace, "get", kind, name, "-o", "jsonpath={"+path+"}")
		return err == nil && out == want, out
	})
}

// launcher is the pod of the namespace's only guest.
func (s *site) launcher() *corev1.Pod {
	s.T.Helper()
	pods, err := s.Client.CoreV1().Pods(s.Namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "kubevirt.io=virt-launcher"})
	if err != nil || len(pods.Items) != 1 {
		s.T.Fatalf("there are %d launchers (%v), want 1", len(pods.Items), err)
	}
	return &pods.Items[0]
}

// runsOn checks that a guest's pod is the one that it was, and that nothing in it was started again.
func (s *site) runsOn(before *corev1.Pod) {
	s.T.Helper()
	now := s.launcher()
	if now.UID != before.UID || now.Status.Phase != corev1.PodRunning || now.DeletionTimestamp != nil {
		s.T.Fatalf("the guest is in pod %s (%s, deleted %v), and was in %s", now.UID, now.Status.Phase, now.DeletionTimestamp, before.UID)
	}
	for _, c := range now.Status.ContainerStatuses {
		if c.RestartCount != 0 {
			s.T.Errorf("container %s of the launcher was started %d times again", c.Name, c.RestartCount)
		}
	}
}

func (s *site) isNamespace(name string) bool {
	s.T.Helper()
	_, err := s.Client.CoreV1().Namespaces().Get(s.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.T.Fatal(err)
	}
	return err == nil
}

// machine is a guest with a blank disk; it has nothing to boot, and that it runs is all that is asked of it.
const machine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: kept}
spec:
  runStrategy: Always
  dataVolumeTemplates:
    - metadata: {name: kept-disk}
      spec: {source: {blank: {}}, storage: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}
  template:
    spec:
      evictionStrategy: LiveMigrate
      terminationGracePeriodSeconds: 0
      domain: {memory: {guest: 32Mi}, resources: {requests: {cpu: 10m}}, devices: {}}
      volumes: [{name: disk, dataVolume: {name: kept-disk}}]
`

func blank(name string) string {
	return fmt.Sprintf(`
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: %s, annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: ""}}
spec: {source: {blank: {}}, storage: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}
`, name)
}
