package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// MoveVolume is the pod's volume with the keys of the migration. A launcher without it was started by a version without migrations.
const MoveVolume = "berth-move"

// SetsVolume has the names of disks that were added. A launcher without it gives them to its guest behind libvirt's back.
const SetsVolume = "berth-sets"

// MoveSecret is the name of the Secret with the keys of an instance's migration. All its launchers mount it.
func MoveSecret(i *kubevirt.VirtualMachineInstance) string {
	return Machine{Instance: i}.PodName(Launcher) + "-move"
}

// ReplacementName returns the name of the claim that takes the place of a volume's claim in a migration.
func ReplacementName(migration types.UID, volume string) string {
	return fit("move-" + string(migration[:min(8, len(migration))]) + "-" + volume)
}

// elsewhere is the affinity with one node left out.
func elsewhere(a *corev1.Affinity, away string) *corev1.Affinity {
	if away == "" {
		return a
	}
	not := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{away}}
	a = a.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range required.NodeSelectorTerms { // one of them has to hold, so each says it
		t := &required.NodeSelectorTerms[i]
		t.MatchFields = append(t.MatchFields, not)
	}
	a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	return a
}
