package machine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
)

// TestUploadIsAwaited: a machine does not boot from a claim before the image that is uploaded into it is complete, whether the
// machine is started first, and so binds the claim, or the upload was begun first.
func TestUploadIsAwaited(t *testing.T) {
	for name, begun := range map[string]bool{"the machine first": false, "the upload first": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
			w.must(w.api.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"},
				Provisioner: "topolvm.io", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}))
			w.change(false, func(vm *kubevirt.VirtualMachine) {
				vm.Spec.DataVolumeTemplates = nil
				vm.Spec.Template.Spec.Domain.Devices.Disks = nil
				vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{
					{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "sent"}}}}
			})
			c := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sent", UID: "sent", Annotations: map[string]string{claimorder.Upload: ""}},
				Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local")},
				Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
			}
			if begun {
				c.Annotations[clonesource.AnnPodPhase] = string(corev1.PodRunning)
			}
			w.must(w.api.Create(t.Context(), c))
			if begun {
				w.bind(c)
			}
			w.run()
			c, err := cluster.Get[corev1.PersistentVolumeClaim](t.Context(), w.api, ns, "sent")
			w.must(err)
			if w.guests != 0 || c.Status.Phase != corev1.ClaimBound {
				t.Fatalf("%d guests run on a claim without its image, which is %s", w.guests, c.Status.Phase)
			}
			if said := w.says(); !strings.Contains(said, "sent is not filled: it is still being filled by an upload") {
				t.Errorf("the machine says %q", said)
			}
			c.Annotations[clonesource.AnnPodPhase] = string(corev1.PodSucceeded)
			w.must(w.api.Update(t.Context(), c))
			w.run()
			if w.guests != 1 || w.vm().Status.PrintableStatus != kubevirt.StatusRunning {
				t.Errorf("%d guests, the machine is %s", w.guests, w.vm().Status.PrintableStatus)
			}
		})
	}
}

// says is everything that the conditions of the instance say.
func (w *world) says() string {
	var all []string
	for _, c := range w.instance().Status.Conditions {
		all = append(all, c.Message)
	}
	return strings.Join(all, "; ")
}
