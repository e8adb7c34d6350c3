package bind

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// TestPod keeps the consumer of each kind of place in testdata.
func TestPod(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "fedora-dv", UID: "8c7a"},
	}
	block := claim.DeepCopy()
	block.Name, block.Spec.VolumeMode = "a-claim-with-a-name-so-long-that-a-pod-cannot-have-it-too", new(corev1.PersistentVolumeBlock)
	memory := resource.MustParse("2Gi")
	machine := &Machine{Name: "web", Claims: []string{"web-root"}, KVM: kvm, Spec: kubevirt.VirtualMachineInstanceSpec{
		NodeSelector: map[string]string{"disk": "fast"},
		Tolerations:  []corev1.Toleration{{Key: "machines", Operator: corev1.TolerationOpExists}},
		Domain:       kubevirt.DomainSpec{Memory: &kubevirt.Memory{Guest: &memory}, CPU: &kubevirt.CPU{Cores: 2}},
		Volumes: []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
			DataVolume: &kubevirt.DataVolumeSource{Name: "web-root"}}}},
	}}
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		at    Place
	}{
		"anywhere": {claim, Place{}}, "node": {block, Place{Node: "node1"}}, "like": {claim, Place{Like: machine}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Pod(c.claim, c.at)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, filepath.Join("testdata", name+".yaml"), got)
		})
	}
}

func TestBound(t *testing.T) {
	ref := &corev1.TypedObjectReference{Kind: "VolumeUploadSource", Name: "a"}
	for name, c := range map[string]struct {
		phase corev1.PersistentVolumeClaimPhase
		node  string
		ref   *corev1.TypedObjectReference
		want  bool
	}{
		"bound":                        {phase: corev1.ClaimBound, want: true},
		"pending":                      {phase: corev1.ClaimPending},
		"a node, no volume yet":        {phase: corev1.ClaimPending, node: "node1"},
		"a node, and a populator":      {phase: corev1.ClaimPending, node: "node1", ref: ref, want: true},
		"a populator that still waits": {phase: corev1.ClaimPending, ref: ref},
	} {
		claim := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: c.phase}}
		claim.Spec.DataSourceRef = c.ref
		if c.node != "" {
			claim.Annotations = map[string]string{names.SelectedNode: c.node}
		}
		if got := bound(claim); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
