package machine

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/pkg/claim"
)

func diskIn(t *testing.T, size string) int64 {
	t.Helper()
	q := resource.MustParse(size)
	n, err := claim.Ext4.Disk(q.Value(), claim.DefaultOverhead)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGrowth: a disk in a filesystem grows to what its claim has and was asked for; a device is seen by the launcher itself.
func TestGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*diskstate.Disk)
		want   int64
	}{
		"as large as asked for":            {func(*diskstate.Disk) {}, diskIn(t, "2Gi")},
		"not grown yet":                    {func(d *diskstate.Disk) { d.Claim.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("1Gi") }, diskIn(t, "1Gi")},
		"larger than asked for":            {func(d *diskstate.Disk) { d.Claim.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("3Gi") }, diskIn(t, "2Gi")},
		"a device":                         {func(d *diskstate.Disk) { d.Claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, 0},
		"at a server":                      {func(d *diskstate.Disk) { d.Direct = &netdisk.Behind{} }, 2 << 30},
		"only read":                        {func(d *diskstate.Disk) { d.Mode = accessv1.ReadShared }, 0},
		"a copy":                           {func(d *diskstate.Disk) { d.Copied = &kubevirt.DiskCopy{} }, 0},
		"not bound":                        {func(d *diskstate.Disk) { d.Claim.Status.Phase = corev1.ClaimPending }, 0},
		"a clone of the same size":         {func(d *diskstate.Disk) { cloned(d, diskIn(t, "2Gi")-3<<20) }, 0},
		"a clone whose claim grew since":   {func(d *diskstate.Disk) { cloned(d, 1<<30) }, diskIn(t, "2Gi")},
		"a clone of which nothing is said": {func(d *diskstate.Disk) { d.Claim.Annotations = map[string]string{names.CloneSize: names.CloneSizeKept} }, diskIn(t, "2Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{strategy: kubevirt.RunHalted})
			two := resource.MustParse("2Gi")
			d := &diskstate.Disk{Mode: accessv1.WriteExclusive, Claim: &corev1.PersistentVolumeClaim{
				Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: two}}},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: two}}}}
			c.change(d)
			w.must(w.r.Read.Growth(context.Background(), d))
			if d.Grows != c.want {
				t.Errorf("%d instead of %d", d.Grows, c.want)
			}
		})
	}
}

func cloned(d *diskstate.Disk, size int64) {
	d.Claim.Annotations = map[string]string{names.CloneSize: names.CloneSizeKept, names.DiskSize: resource.NewQuantity(size, resource.DecimalSI).String()}
}

// TestGrowthIsTold: the launcher of a running guest is told about a claim that has grown since it was made, once; the next one is made with it.
func TestGrowthIsTold(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
	w.run()
	if text := w.launcher().Annotations[render.AnnDisks]; text != "" {
		t.Errorf("it was told %s", text)
	}
	c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, vmName+"-root")
	w.must(err)
	two := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	c.Spec.Resources.Requests = two
	w.must(w.api.Update(context.Background(), c))
	c.Status.Capacity = two
	w.must(w.api.Status().Update(context.Background(), c))
	w.settle()
	var told launcherapi.Disks
	w.must(json.Unmarshal([]byte(w.launcher().Annotations[render.AnnDisks]), &told))
	if want := diskIn(t, "2Gi"); told.Sizes["root"] != want || len(told.Sizes) != 1 || told.Serial != 1 {
		t.Errorf("it was told %+v", told)
	}
	requests(kubevirt.StopRequest, kubevirt.StartRequest)(w)
	w.settle()
	p := w.launcher()
	if got := launcherpod.Machine(p).Sizes["root"]; got != diskIn(t, "2Gi") || p.Annotations[render.AnnDisks] != "" {
		t.Errorf("the next one was made with %d and told %q", got, p.Annotations[render.AnnDisks])
	}
}
