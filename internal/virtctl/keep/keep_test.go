package keep

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corefake "k8s.io/client-go/kubernetes/fake"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/createpvc"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

func instance(uid types.UID, phase kubevirt.Phase, k *kubevirt.KeepStatus) *kubevirt.VirtualMachineInstance {
	i := &kubevirt.VirtualMachineInstance{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: uid}}
	i.Spec.Volumes = []kubevirt.Volume{{Name: "data"}, {Name: "root", Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyClone}}}
	i.Status.Phase = phase
	i.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root", Size: 7, Copy: &kubevirt.CopyStatus{Mode: kubevirt.CopyClone, Keep: k}}}
	return i
}

// TestLook: the claim's own record says that it is done, also when the machine is gone; a machine that ended before is an error that says
// what to do with the claim.
func TestLook(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	writing := &kubevirt.KeepStatus{ClaimName: "mine", Reason: kubevirt.KeepUnderWay, Progress: "45%", Message: "it is being written"}
	for name, row := range map[string]struct {
		phase string // recorded on the claim
		now   *kubevirt.VirtualMachineInstance
		want  progress
		fails string
	}{
		"written, and the machine gone": {"Succeeded", nil, progress{over: true}, ""},
		"half of it, and gone":          {"Running", nil, progress{}, "ended before its disk root was kept"},
		"half of it, and another run":   {"Running", instance("u2", kubevirt.PhaseRunning, nil), progress{}, "ended before its disk root was kept"},
		"half of it, and ended":         {"Running", instance("u1", kubevirt.PhaseFailed, writing), progress{}, "ended before"},
		"half of it":                    {"Running", instance("u1", kubevirt.PhaseRunning, writing), progress{progress: 45, text: "it is being written"}, ""},
		"not begun":                     {"", instance("u1", kubevirt.PhaseRunning, nil), progress{}, ""},
		"of another claim": {"", instance("u1", kubevirt.PhaseRunning, &kubevirt.KeepStatus{ClaimName: "other", Reason: kubevirt.KeepFailed}),
			progress{}, ""},
		"failed": {"Running", instance("u1", kubevirt.PhaseRunning, &kubevirt.KeepStatus{ClaimName: "mine", Reason: kubevirt.KeepFailed, Message: "too small"}),
			progress{}, "too small"},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if row.now != nil {
				objects = append(objects, row.now)
			}
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine", Annotations: map[string]string{names.PodPhase: row.phase}}}
			c := &kube.Client{Core: corefake.NewClientset(pvc), Dynamic: dynamicfake.NewSimpleDynamicClient(scheme, objects...), Namespace: "team"}
			got, err := look(context.Background(), c, instance("u1", "", nil), Options{Machine: "web", Disk: "root", Claim: createpvc.Options{Name: "mine"}})
			if (err == nil) != (row.fails == "") || err != nil && !strings.Contains(err.Error(), row.fails) || got != row.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestSizeOf(t *testing.T) {
	if size, err := sizeOf(instance("u1", "", nil), "root"); size != 7 || err != nil {
		t.Errorf("got %d, %v", size, err)
	}
	if _, err := sizeOf(instance("u1", "", nil), "data"); err == nil || !strings.Contains(err.Error(), "is no copy") {
		t.Errorf("of a disk that is the volume itself: %v", err)
	}
	none := instance("u1", "", nil)
	none.Spec.Volumes = none.Spec.Volumes[:1]
	if _, err := sizeOf(none, "root"); err == nil || !strings.Contains(err.Error(), "has no copies") {
		t.Errorf("of a machine without copies: %v", err)
	}
}

// TestEnsureLeavesOthersAlone: a claim that was not made for this disk is not taken.
func TestEnsureLeavesOthersAlone(t *testing.T) {
	for from, fails := range map[string]bool{"u1/root": false, "u2/root": true, "": true} {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine", Annotations: map[string]string{names.KeptFrom: from}}}
		c := &kube.Client{Core: corefake.NewClientset(pvc), Namespace: "team"}
		var out strings.Builder
		err := ensure(context.Background(), c, instance("u1", "", nil), Options{Disk: "root", Claim: createpvc.Options{Name: "mine"}}, &out)
		if (err != nil) != fails {
			t.Errorf("%q: %v, %s", from, err, out.String())
		}
	}
}
