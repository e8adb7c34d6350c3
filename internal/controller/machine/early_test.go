package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/vm"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
)

// TestEarlyDisk: a disk that is being filled is ready if it is served where the launcher is or can still go, and for no other launcher.
func TestEarlyDisk(t *testing.T) {
	on := func(node string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }
	for name, c := range map[string]struct {
		change   func(*diskstate.Disk)
		launcher *corev1.Pod
		want     machine.Disks
	}{
		"before there is a launcher":  {want: machine.Ready},
		"a launcher without a node":   {launcher: on(""), want: machine.Ready},
		"a launcher on its node":      {launcher: on("node1"), want: machine.Ready},
		"a launcher elsewhere":        {launcher: on("node2"), want: machine.Filling},
		"nobody serves it":            {change: func(d *diskstate.Disk) { delete(d.Claim.Annotations, names.ServedOn) }, want: machine.Filling},
		"its worker has ended":        {change: func(d *diskstate.Disk) { d.Claim.Annotations[names.PodPhase] = "Failed" }, want: machine.Filling},
		"the guest is to have a copy": {change: func(d *diskstate.Disk) { d.Copied = &kubevirt.DiskCopy{} }, want: machine.Filling},
		"a device":                    {change: func(d *diskstate.Disk) { d.Claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }, want: machine.Filling},
		"a claim that is not bound":   {change: func(d *diskstate.Disk) { d.Claim.Status.Phase = corev1.ClaimPending }, want: machine.Filling},
		"one that failed":             {change: func(d *diskstate.Disk) { d.State = machine.Failed }, want: machine.Failed},
	} {
		d := diskstate.Disk{State: machine.Filling, Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.ServedOn: "node1", names.PodPhase: "Running"}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}}
		if c.change != nil {
			c.change(&d)
		}
		d.ObserveEarly(c.launcher)
		if d.State != c.want || d.Early != (c.want == machine.Ready) {
			t.Errorf("%s: %s, early %v", name, d.State, d.Early)
		}
	}
}

// TestAskedAtTheVolume: a volume that is to be used early has its DataVolume made so, and no other; the instance is not told.
func TestAskedAtTheVolume(t *testing.T) {
	asks := &kubevirt.VirtualMachine{Spec: kubevirt.VirtualMachineSpec{Template: &kubevirt.VirtualMachineInstanceTemplateSpec{}}}
	volume := func(name string, early bool, source kubevirt.VolumeSource) {
		asks.Spec.Template.Spec.Volumes = append(asks.Spec.Template.Spec.Volumes, kubevirt.Volume{Name: name, BootEarly: early, VolumeSource: source})
	}
	volume("a", true, kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "early"}})
	volume("b", false, kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "late"}})
	volume("c", true, kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "late"}})
	for name, want := range map[string]string{"early": "true", "late": ""} {
		template := kubevirt.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if got := vm.NewVolume(asks, template).Annotations[names.BootEarly]; got != want {
			t.Errorf("DataVolume %s has %s %q, want %q", name, names.BootEarly, got, want)
		}
	}
	asked := kubevirt.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "late", Annotations: map[string]string{names.BootEarly: "true"}}}
	if vm.NewVolume(asks, asked).Annotations[names.BootEarly] != "true" {
		t.Error("what the template asks for is lost")
	}
	for _, v := range observed.NewInstance(asks).Spec.Volumes {
		if v.BootEarly {
			t.Errorf("volume %s of the instance has the field", v.Name)
		}
	}
}
