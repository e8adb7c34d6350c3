package instance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// TestKeepBeside: a pod is kept to the nodes where the claims of its machine can be made, within what the machine's own affinity
// allows; and a claim that waits for its snapshot is checked again.
func TestKeepBeside(t *testing.T) {
	part := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node1"}}}}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}}}
	s := &observed.Instance{Disks: []diskstate.Disk{{}, {Beside: part}}}
	keepBeside(s, pod)
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || terms[0].MatchFields[0].Values[0] != "node1" || pod.Spec.Affinity.PodAffinity == nil {
		t.Errorf("it is kept to %v", pod.Spec.Affinity)
	}
	if awaitsSource(s) != 0 {
		t.Error("it is looked at again, and waits for nothing")
	}
	s.Disks[0].Unready = true
	if awaitsSource(s) != sourceAgain {
		t.Error("it is not looked at again")
	}
}
