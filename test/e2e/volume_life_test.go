//go:build e2e

package e2e

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
)

// TestVolumeDeleted: a volume deleted in any phase leaves nothing behind.
func TestVolumeDeleted(t *testing.T) {
	t.Parallel()
	for phase, lead := range map[cdiv1.DataVolumePhase]func(*bed, *volume){
		cdiv1.Pending:              func(b *bed, v *volume) { v.change = cloneOf(b.Namespace) }, // of a claim that does not exist
		cdiv1.WaitForFirstConsumer: func(_ *bed, v *volume) { v.class = classWaits },
		cdiv1.ImportInProgress:     func(b *bed, _ *volume) { b.T.Cleanup(b.web.hold()) },
		cdiv1.Succeeded:            func(*bed, *volume) {},
		cdiv1.Failed:               func(_ *bed, v *volume) { v.storage = "8Mi" },
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			v := volume{class: classImmediate, storage: "40Mi"}
			lead(b, &v)
			dv := b.volume(v)
			b.untilPhase("disk", phase)
			b.must(b.kube.Delete(b.Context(), dv))
			b.Wait("nothing to be left", patience, func(ctx context.Context) (bool, string) {
				left := b.workers(ctx)
				var claims corev1.PersistentVolumeClaimList
				if err := b.kube.List(ctx, &claims, client.InNamespace(b.Namespace)); err != nil {
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
	b := newBed(t)
	b.volume(volume{class: classImmediate, storage: "40Mi"})
	b.untilPhase("disk", cdiv1.Succeeded)
	old := b.claim("disk")
	b.must(b.kube.Delete(b.Context(), old))
	b.Wait("another claim", patience, func(ctx context.Context) (bool, string) {
		var now corev1.PersistentVolumeClaim
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(old), &now)
		return err == nil && now.UID != old.UID, fmt.Sprint(err)
	})
	b.until("disk", "to be complete again", func(dv *cdiv1.DataVolume) bool {
		return dv.Status.Phase == cdiv1.Succeeded && b.claim("disk").Annotations["cdi.kubevirt.io/storage.pod.phase"] == "Succeeded"
	})
	b.holds("disk", image(24), 40*mib)

	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: b.WaitBound("disk").Name}}
	b.must(b.kube.Delete(b.Context(), pv))
	b.must(b.kube.Patch(b.Context(), pv, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	dv := b.untilPhase("disk", cdiv1.Failed)
	if c := condition(dv, cdiv1.DataVolumeBound); c.Reason != "ClaimLost" || !strings.Contains(message(dv), "lost") {
		t.Errorf("a volume whose claim is lost says %q, %+v", message(dv), c)
	}
	b.tells("disk", "ErrClaimLost")
}

// TestVolumeRestored: a claim said to hold its data already (as after a restore from backup) is not imported into.
func TestVolumeRestored(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "disk", Annotations: map[string]string{
			"cdi.kubevirt.io/storage.populatedFor": "disk",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr(classImmediate), Resources: request("40Mi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}
	b.must(b.kube.Create(b.Context(), pvc))
	b.volume(volume{class: classImmediate, storage: "40Mi"})
	b.untilPhase("disk", cdiv1.Succeeded)
	if b.web.requests() != 0 {
		t.Error("a restored claim was imported into")
	}
}

// TestVolumesAtOnce: many volumes at the same time, each right, none tried twice.
func TestVolumesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.web.put("/small.img", image(2))
	const many = 50
	start := time.Now()
	for i := range many {
		b.volume(volume{name: fmt.Sprintf("disk-%d", i), class: classImmediate, storage: "4Mi", url: b.web.url + "/small.img"})
	}
	b.Wait("all volumes to be complete", 15*time.Minute, func(ctx context.Context) (bool, string) {
		var all cdiv1.DataVolumeList
		if err := b.kube.List(ctx, &all, client.InNamespace(b.Namespace)); err != nil {
			return false, err.Error()
		}
		phases := map[cdiv1.DataVolumePhase]int{}
		for _, dv := range all.Items {
			phases[dv.Status.Phase]++
			if dv.Status.RestartCount != 0 {
				t.Errorf("%s was tried %d times more than once: %s", dv.Name, dv.Status.RestartCount, message(&dv))
			}
		}
		return phases[cdiv1.Succeeded] == many, fmt.Sprint(phases)
	})
	t.Logf("%d volumes in %s", many, time.Since(start).Round(time.Second))
	b.holds("disk-7", image(2), 4*mib)
}
