package machine

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/launchers"
	"github.com/berth-vm/berth/internal/render"
)

// TestMigrationState: an instance that has moved shows from where, to where and when, in the fields that clients read.
func TestMigrationState(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, move: moves})
	w.settle()
	moveTo("one")(w)
	w.settle()
	m, err := cluster.Get[kubevirt.VirtualMachineInstanceMigration](t.Context(), w.api, ns, "one")
	w.must(err)
	for whose, s := range map[string]*kubevirt.MigrationState{"instance": w.instance().Status.MigrationState, "migration": m.Status.MigrationState} {
		if s == nil || s.StartTimestamp == nil || s.EndTimestamp == nil || s.TargetNodeDomainReadyTimestamp == nil || !s.TargetNodeDomainDetected {
			t.Fatalf("%s: a time is missing: %+v", whose, s)
		}
		if s.TargetNodeDomainReadyTimestamp.Before(s.StartTimestamp) || s.EndTimestamp.Before(s.TargetNodeDomainReadyTimestamp) {
			t.Errorf("%s: it is ready at %s, between %s and %s", whose, s.TargetNodeDomainReadyTimestamp, s.StartTimestamp, s.EndTimestamp)
		}
		if !s.Completed || s.Failed || s.AbortRequested || s.AbortStatus != "" || s.MigrationUID != m.UID || s.Mode != kubevirt.PreCopy ||
			s.SourceNode != "node1" || s.TargetNode != "node2" || s.SourcePod == "" || s.TargetPod == "" || s.TargetNodeAddress == "" {
			t.Errorf("%s: %+v", whose, s)
		}
	}
}

// TestUpdateIsKept: the migration of a changed volume is not called off when its guest has come and only the launchers do not say so yet; one
// whose claims nobody wants any more is.
func TestUpdateIsKept(t *testing.T) {
	volume := func(claim string) []kubevirt.Volume {
		return []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: claim}}}}
	}
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName, UID: "run"}}
	migration := kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: updating + "1", UID: "move-uid",
		OwnerReferences: []metav1.OwnerReference{{Kind: "VirtualMachineInstance", Name: vmName, UID: "run", Controller: new(true)}}}}
	task, err := json.Marshal(launch.Machine{Name: vmName, Incoming: "move-uid", Updated: map[string]string{"root": "old"}, Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: volume("new")}})
	if err != nil {
		t.Fatal(err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: launchers.TargetName(i, types.UID("move-uid")), UID: "target",
		Annotations: map[string]string{render.AnnMachine: string(task)}}}
	for claim, stale := range map[string]bool{"new": false, "old": true} {
		i.Spec.Volumes = volume(claim)
		s := &run{instance: i, launcher: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "source", UID: "source"}}, others: []*corev1.Pod{target}}
		if got := s.staleUpdate([]kubevirt.VirtualMachineInstanceMigration{migration}); (got != nil) != stale {
			t.Errorf("with claim %s: called off %v", claim, got != nil)
		}
	}
}
