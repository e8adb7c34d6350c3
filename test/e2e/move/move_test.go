//go:build e2e

package move

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// moves moves a machine and waits until its instance says that it is on another node.
func moves(y *fixture.Machines, vm *kubevirt.VirtualMachine, name string) {
	y.T.Helper()
	from := y.InstanceOf(y.Context(), vm).Status.NodeName
	m := y.Migrate(vm, name)
	if m.Status.Phase != kubevirt.MigrationSucceeded {
		y.T.Fatalf("migration %s: %s", m.Status.Phase, fixture.MigrationSays(m))
	}
	y.Wait("the instance to say where it is", fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		s := i.Status.MigrationState
		return i.Status.NodeName != from && s != nil && s.Completed && !s.Failed && s.SourceNode == from && s.TargetNode == i.Status.NodeName &&
			s.MigrationUID == m.UID && len(i.Status.ActivePods) == 1, fmt.Sprintf("%+v", i.Status)
	})
	_, launchers := y.PodsOf(y.Context(), vm)
	if at := y.InstanceOf(y.Context(), vm).Status.NodeName; launchers[0].Spec.NodeName != at {
		y.T.Errorf("the launcher is on node %s, and the instance says %s", launchers[0].Spec.NodeName, at)
	}
}

// rounds is how often a guest moves from node to node in one test: there and back, or as often as E2E_MOVES says.
func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("E2E_MOVES"), "2"))
	if err != nil || n < 1 {
		t.Fatalf("E2E_MOVES: %v", os.Getenv("E2E_MOVES"))
	}
	return n
}

// TestMigration: a running guest goes to another node and back with a claim that both nodes have, its network disk, its overlay
// over a container disk, an empty disk and its cloud-init disk, and it is not started again. A drain leaves it to others, as its
// evictionStrategy says.
func TestMigration(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	s := y.NBDServer()
	export, _, err := s.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.ApplySecret("certificates", map[string]string{"ca.crt": string(s.Certificates.CA),
		"tls.crt": string(s.Certificates.Client.Certificate), "tls.key": string(s.Certificates.Client.Key)})
	y.SharedClaim("shared")
	vm := y.MovableMachine("mover",
		kubevirt.Volume{Name: "shared", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "shared"}}},
		kubevirt.Volume{Name: "net", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: export,
			TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}}}},
		kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{
			Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}},
		kubevirt.Volume{Name: "empty", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}},
		kubevirt.Volume{Name: "init", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "#cloud-config\n"}}})
	vm.Spec.Template.Spec.EvictionStrategy = new(kubevirt.EvictExternal)
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	made := y.AnswerTo(vm, "sha256 serial=init")
	c := churns(y, vm, "net", "root", "empty", "shared")
	for i := range rounds(t) {
		c.moves(fmt.Sprintf("move-%d", i), func() { moves(y, vm, fmt.Sprintf("move-%d", i)) })
		if got := y.AnswerTo(vm, "sha256 serial=init"); got != made {
			t.Errorf("its cloud-init disk is another")
		}
	}
	if in, all := serving(y, vm, "shared"), claimNames(y); in != "shared" || slices.ContainsFunc(all, func(n string) bool { return strings.HasPrefix(n, "move-") }) {
		t.Errorf("the disk that both nodes have is in claim %s; claims are %v", in, all)
	}
	nothingOfMoves(y, vm)
	leftToOthers(y, vm)
	y.AnswerTo(vm, "disks")
}

// nothingOfMoves: neither keys nor claims of migrations are left.
func nothingOfMoves(y *fixture.Machines, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	secrets, err := y.Client.CoreV1().Secrets(y.Namespace).List(y.Context(), metav1.ListOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	for _, s := range secrets.Items {
		if strings.HasSuffix(s.Name, "-move") {
			y.T.Errorf("of the migrations of %s Secret %s is left", vm.Name, s.Name)
		}
	}
}
