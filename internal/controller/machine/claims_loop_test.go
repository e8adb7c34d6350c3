package machine

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// claimWorld is a world of a machine with claim templates, and without a data side.
func claimWorld(t *testing.T, objects ...*corev1.PersistentVolumeClaim) *world {
	t.Helper()
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
	w.r.Read.Data = false
	w.must(w.api.Create(context.Background(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Provisioner: "topolvm.io", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}))
	w.change(false, func(vm *kubevirt.VirtualMachine) {
		vm.Spec.DataVolumeTemplates = nil
		template := kubevirt.VolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
		template.Spec.StorageClassName = ptr.To("local")
		template.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		vm.Spec.VolumeClaimTemplates = []kubevirt.VolumeClaimTemplate{template}
		vm.Spec.Template.Spec.Domain.Devices.Disks = nil
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{
			{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{Name: "disk"}}}}
	})
	for _, c := range objects {
		c = c.DeepCopy()
		bound := c.Status.Phase == corev1.ClaimBound
		c.Status.Phase = ""
		w.must(w.api.Create(context.Background(), c))
		if bound {
			w.bind(c)
		}
	}
	return w
}

func (w *world) claimsOutcome() string {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, vmName+"-disk")
	w.must(err)
	text, err := json.MarshalIndent(map[string]any{"rest": w.outcome(), "spec": c.Spec, "labels": c.Labels, "owners": c.OwnerReferences}, "", " ")
	w.must(err)
	return string(text)
}

// TestClaimsLoop: a machine makes its claim, or takes back one that came back without it, or leaves alone what is not its
// own, whatever write is refused or is the controller's last.
func TestClaimsLoop(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName + "-disk", UID: "found"}}
	back := claim.DeepCopy()
	back.Labels = map[string]string{compose.LabelName: vmName}
	back.Status.Phase = corev1.ClaimBound
	for _, c := range []struct {
		name    string
		objects []*corev1.PersistentVolumeClaim
		status  kubevirt.PrintableStatus
	}{
		{"made", nil, kubevirt.StatusRunning},
		{"came back", []*corev1.PersistentVolumeClaim{back}, kubevirt.StatusRunning},
		{"not its own", []*corev1.PersistentVolumeClaim{claim}, kubevirt.StatusPvcNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			calm := claimWorld(t, c.objects...)
			calm.run()
			want := calm.claimsOutcome()
			if got := calm.vm().Status.PrintableStatus; got != c.status {
				t.Fatalf("the machine is %s:\n%s", got, want)
			}
			for at := 1; at <= calm.faults.Writes; at++ {
				for _, kind := range faults.Kinds {
					w := claimWorld(t, c.objects...)
					w.faults.At, w.faults.Kind = at, kind
					w.run()
					if diff := cmp.Diff(want, w.claimsOutcome()); diff != "" {
						t.Errorf("write %d of %d, %s: another end (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, kind, diff)
					}
				}
			}
		})
	}
}
