//go:build e2e

package snapshot

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestClaimsFirstOnOneNode: two machines of one generated name, each with two empty claims of different classes, one of
// them filled by a populator that is not ours while other pods flood the node. The claims of a machine are on the node it
// runs on, and its empty disk is there to be written to. A snapshot of one without an agent says that it has none.
func TestClaimsFirstOnOneNode(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	text, err := os.ReadFile("../../../examples/vm-generate-name.yaml")
	if err != nil {
		t.Fatal(err)
	}
	nodes := y.ReadyNodes()
	made := map[string]bool{}
	var last *kubevirt.VirtualMachine
	for n := range 2 {
		vm := &kubevirt.VirtualMachine{}
		if err := yaml.UnmarshalStrict(text, vm); err != nil {
			t.Fatal(err)
		}
		vm.Namespace = y.Namespace
		always := kubevirt.RunAlways
		vm.Spec.RunStrategy = &always
		spec := vm.Spec.VolumeClaimTemplates[0].Spec.DeepCopy()
		spec.StorageClassName = new("localdisk")
		if n == 0 {
			group := "example.com"
			spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Image", Name: "theirs"}
		}
		vm.Spec.VolumeClaimTemplates = append(vm.Spec.VolumeClaimTemplates,
			kubevirt.VolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "pvc2"}, Spec: *spec})
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, kubevirt.Volume{Name: "volume2",
			VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "pvc2"}}})
		vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodes[n]}
		vm.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
		y.CreateMachine(vm)
		made[vm.Name], last = true, vm
		if n == 0 {
			// Its room is held from the moment its node is chosen, however long its disk takes.
			node := chosen(y, vm.Name+"-pvc2")
			y.FillNodeWithPods(node)
			populate(y, vm.Name+"-pvc2", node)
		}
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		if on := y.NodesOfClaims(vm.Name+"-pvc1", vm.Name+"-pvc2"); len(on) != 1 || !on[nodes[n]] {
			t.Errorf("the claims of %s are on %v, and it runs on %s", vm.Name, on, nodes[n])
		}
	}
	if len(made) != 2 {
		t.Errorf("made %v", made)
	}
	// Nothing is on their disks, so no agent answers: the guest is not held still, and the snapshot says so.
	s := y.SnapshotMachine("agentless", last.Name)
	if got := s.Status.Indications; len(got) < 2 || got[0] != snapshotv1.Online || got[1] != snapshotv1.NoGuestAgent {
		t.Errorf("the indications are %v", s.Status.SourceIndications)
	}
}

// chosen waits for the node that the scheduler chooses for a claim.
func chosen(y *fixture.Machines, claim string) string {
	y.T.Helper()
	node := ""
	y.Wait("a node for claim "+claim, fixture.Patience, func(ctx context.Context) (bool, string) {
		c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		node = c.Annotations[fixture.SelectedNodeAnnotation]
		return node != "", "none"
	})
	return node
}

// populate simulates another project's populator: it fills a claim of its own on the node that was chosen, and gives its volume away.
func populate(y *fixture.Machines, target, node string) {
	y.T.Helper()
	claims := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace)
	c, err := claims.Get(y.Context(), target, metav1.GetOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	theirs := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs", Annotations: map[string]string{fixture.SelectedNodeAnnotation: node}}, Spec: *c.Spec.DeepCopy()}
	theirs.Spec.DataSource, theirs.Spec.DataSourceRef, theirs.Spec.VolumeName = nil, nil, ""
	if _, err := claims.Create(y.Context(), theirs, metav1.CreateOptions{}); err != nil {
		y.T.Fatal(err)
	}
	script := "truncate -s 8M /theirs/disk.img && chmod 666 /theirs/disk.img"
	if *c.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		script = "dd if=/dev/zero of=/dev/theirs bs=1M count=1"
	}
	y.Run(framework.Pod{Name: "populator", Script: script, Claims: []string{"theirs"}})
	pv := y.WaitBound("theirs")
	patchVolume(y, pv.Name, fmt.Sprintf(`{"spec":{"claimRef":{"name":%q,"uid":%q,"resourceVersion":null}}}`, target, c.UID))
	if err := claims.Delete(y.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		y.T.Fatal(err)
	}
}
