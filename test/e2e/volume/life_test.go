//go:build e2e

package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestVolumeDeleted: a volume deleted in any phase leaves nothing behind.
func TestVolumeDeleted(t *testing.T) {
	t.Parallel()
	for phase, lead := range map[cdiv1.DataVolumePhase]func(*fixture.Volumes, *fixture.Volume){
		cdiv1.Pending:              func(b *fixture.Volumes, v *fixture.Volume) { v.Change = cloneOf(b.Namespace) }, // of a claim that does not exist
		cdiv1.WaitForFirstConsumer: func(_ *fixture.Volumes, v *fixture.Volume) { v.Class = fixture.ClassWaits },
		cdiv1.ImportInProgress:     func(b *fixture.Volumes, _ *fixture.Volume) { b.T.Cleanup(b.Web.Hold()) },
		cdiv1.Succeeded:            func(*fixture.Volumes, *fixture.Volume) {},
		cdiv1.Failed:               func(_ *fixture.Volumes, v *fixture.Volume) { v.Storage = "8Mi" },
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t)
			v := fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"}
			lead(b, &v)
			dv := b.CreateVolume(v)
			b.UntilPhase("disk", phase)
			b.NoError(b.Kube.Delete(b.Context(), dv))
			b.Wait("nothing to be left", fixture.Patience, func(ctx context.Context) (bool, string) {
				left := b.WorkersOf(ctx)
				var claims corev1.PersistentVolumeClaimList
				if err := b.Kube.List(ctx, &claims, client.InNamespace(b.Namespace)); err != nil {
					return false, err.Error()
				}
				for _, c := range claims.Items {
					left = append(left, "claim "+c.Name)
				}
				return len(left) == 0, strings.Join(left, " ")
			})
		})
	}
}

// TestVolumeClaimDeleted: a claim deleted under its volume is made again and filled again; one that has lost its own volume is the
// end, and says so.
func TestVolumeClaimDeleted(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.UntilPhase("disk", cdiv1.Succeeded)
	old := b.ReadClaim("disk")
	b.NoError(b.Kube.Delete(b.Context(), old))
	b.Wait("another claim", fixture.Patience, func(ctx context.Context) (bool, string) {
		var now corev1.PersistentVolumeClaim
		err := b.Kube.Get(ctx, client.ObjectKeyFromObject(old), &now)
		return err == nil && now.UID != old.UID, fmt.Sprint(err)
	})
	b.Until("disk", "to be complete again", func(dv *cdiv1.DataVolume) bool {
		return dv.Status.Phase == cdiv1.Succeeded && b.ReadClaim("disk").Annotations["cdi.kubevirt.io/storage.pod.phase"] == "Succeeded"
	})
	b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)

	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: b.WaitBound("disk").Name}}
	b.NoError(b.Kube.Delete(b.Context(), pv))
	b.NoError(b.Kube.Patch(b.Context(), pv, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	dv := b.UntilPhase("disk", cdiv1.Failed)
	if c := fixture.ConditionOf(dv, cdiv1.DataVolumeBound); c.Reason != "ClaimLost" || !strings.Contains(fixture.ReadyMessageOf(dv), "lost") {
		t.Errorf("a volume whose claim is lost says %q, %+v", fixture.ReadyMessageOf(dv), c)
	}
	b.HasEvents("disk", "ErrClaimLost")
}

// TestVolumeRestored: a claim said to hold its data already (as after a restore from backup) is not imported into.
func TestVolumeRestored(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "disk", Annotations: map[string]string{
			"cdi.kubevirt.io/storage.populatedFor": "disk",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: fixture.Ptr(fixture.ClassImmediate), Resources: fixture.StorageRequest("40Mi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}
	b.NoError(b.Kube.Create(b.Context(), pvc))
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.UntilPhase("disk", cdiv1.Succeeded)
	if b.Web.Requests() != 0 {
		t.Error("a restored claim was imported into")
	}
}

// TestVolumesAtOnce: many volumes at the same time, each right, none tried twice.
func TestVolumesAtOnce(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.Web.Put("/small.img", fixture.DiskImage(2))
	const many = 50
	start := time.Now()
	for i := range many {
		b.CreateVolume(fixture.Volume{Name: fmt.Sprintf("disk-%d", i), Class: fixture.ClassImmediate, Storage: "4Mi", URL: b.Web.URL + "/small.img"})
	}
	b.Wait("all volumes to be complete", 15*time.Minute, func(ctx context.Context) (bool, string) {
		var all cdiv1.DataVolumeList
		if err := b.Kube.List(ctx, &all, client.InNamespace(b.Namespace)); err != nil {
			return false, err.Error()
		}
		phases := map[cdiv1.DataVolumePhase]int{}
		for _, dv := range all.Items {
			phases[dv.Status.Phase]++
			if dv.Status.RestartCount != 0 {
				t.Errorf("%s was tried %d times more than once: %s", dv.Name, dv.Status.RestartCount, fixture.ReadyMessageOf(&dv))
			}
		}
		return phases[cdiv1.Succeeded] == many, fmt.Sprint(phases)
	})
	t.Logf("%d volumes in %s", many, time.Since(start).Round(time.Second))
	b.Holds("disk-7", fixture.DiskImage(2), 4*fixture.MiB)
}
