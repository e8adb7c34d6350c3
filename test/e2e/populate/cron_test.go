//go:build e2e

package populate

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestCron: a golden image is imported, a claim of another namespace is cloned from it; the source has a newer one, which
// is imported on schedule, the names switch to it, and the older is removed.
func TestCron(t *testing.T) {
	t.Parallel()
	b, team := fixture.NewVolumes(t, framework.Restricted), fixture.NewVolumes(t, framework.Restricted)
	class, block := fixture.ClassImmediate, corev1.PersistentVolumeFilesystem
	b.CreateObject(&cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "images"},
		Spec: cdiv1.DataImportCronSpec{
			Schedule: "* * * * *", ManagedDataSource: "os", ImportsToKeep: fixture.Ptr[int32](1),
			Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
				Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}},
				Storage: &cdiv1.StorageSpec{
					StorageClassName: &class, VolumeMode: &block, Resources: fixture.StorageRequest("40Mi"),
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				},
			}},
		},
	})
	first := b.WaitCronUpToDate("images", "")
	grantTo(b, team.Namespace)
	disk := populated{name: "old", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeCloneSource", source: "os", from: b.Namespace}
	populate(team, disk)
	team.UntilPopulated("old")
	team.BeginsWith("old", fixture.DiskImage(24))

	b.Web.Put("/disk.img", fixture.DiskImage(16))
	second := b.WaitCronUpToDate("images", first)
	disk.name = "new"
	populate(team, disk)
	team.UntilPopulated("new")
	team.BeginsWith("new", fixture.DiskImage(16))

	var ds cdiv1.DataSource
	if err := b.Kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: "os"}, &ds); err != nil {
		t.Fatal(err)
	}
	if ds.Spec.Source.PVC == nil || ds.Spec.Source.PVC.Name != second {
		t.Errorf("the DataSource stands for %v", ds.Spec.Source)
	}
	b.Wait("the older import to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		var all cdiv1.DataVolumeList
		err := b.Kube.List(ctx, &all, client.InNamespace(b.Namespace))
		return err == nil && len(all.Items) == 1 && all.Items[0].Name == second, fmt.Sprint(len(all.Items))
	})
}

// TestCronKeepsSnapshots: storage whose profile says so keeps golden images as snapshots. The names stand for the snapshot,
// its claim is gone, and claims are cloned from it, here and in another namespace.
func TestCronKeepsSnapshots(t *testing.T) {
	t.Parallel()
	b, team := fixture.NewVolumes(t, framework.Restricted), fixture.NewVolumes(t, framework.Restricted)
	class := snapshotClass(b)
	b.CreateObject(&cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "images"},
		Spec: cdiv1.DataImportCronSpec{
			Schedule: "0 0 1 1 *", ManagedDataSource: "os",
			Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
				Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}},
				Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: fixture.StorageRequest("40Mi")},
			}},
		},
	})
	name := b.WaitCronUpToDate("images", "")
	var ds cdiv1.DataSource
	b.Wait("the DataSource to be ready and the claim to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		if err := b.Kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: "os"}, &ds); err != nil {
			return false, err.Error()
		}
		var all cdiv1.DataVolumeList
		err := b.Kube.List(ctx, &all, client.InNamespace(b.Namespace))
		ready := len(ds.Status.Conditions) > 0 && ds.Status.Conditions[0].Status == corev1.ConditionTrue
		return err == nil && ready && len(all.Items) == 0, fmt.Sprint(ds.Status, len(all.Items))
	})
	if s := ds.Spec.Source.Snapshot; s == nil || s.Name != name {
		t.Errorf("the DataSource stands for %+v", ds.Spec.Source)
	}
	grantTo(b, team.Namespace)
	disk := populated{name: "here", class: class, size: "64Mi", kind: "VolumeCloneSource", source: "os", block: true}
	populate(b, disk)
	disk.name, disk.from = "there", b.Namespace
	populate(team, disk)
	for name, at := range map[string]*fixture.Volumes{"here": b, "there": team} {
		at.UntilPopulated(name)
		at.BeginsWith(name, fixture.DiskImage(24))
	}
}

// snapshotClass is a class of disks that binds at once and whose golden images are kept as snapshots.
func snapshotClass(b *fixture.Volumes) string {
	b.T.Helper()
	var like storagev1.StorageClass
	if err := b.Kube.Get(b.Context(), types.NamespacedName{Name: fixture.ClassDiskImmediate}, &like); err != nil {
		b.T.Fatal(err)
	}
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: b.Namespace},
		Provisioner: like.Provisioner, Parameters: like.Parameters, VolumeBindingMode: like.VolumeBindingMode,
	}
	b.CreateObject(class)
	b.T.Cleanup(func() { _ = b.Kube.Delete(context.WithoutCancel(b.Context()), class) })
	b.Wait("the profile of the class", fixture.Patience, func(ctx context.Context) (bool, string) {
		p := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: class.Name}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dataImportCronSourceFormat":"snapshot"}}`))
		if err := b.Kube.Patch(ctx, p, patch); err != nil {
			return false, err.Error()
		}
		form := p.Status.DataImportCronSourceFormat
		return form != nil && *form == cdiv1.DataImportCronSourceFormatSnapshot && p.Status.SnapshotClass != nil, fmt.Sprint(p.Status)
	})
	return class.Name
}
