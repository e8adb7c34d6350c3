//go:build e2e

package volume

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestVolumeCloneByDriver: where the storage clones by itself no byte is moved. The clone is bound at once or held like any other
// volume, may be bound by the annotation without a consumer, and may be larger, also its disk.
func TestVolumeCloneByDriver(t *testing.T) {
	t.Parallel()
	for mode, block := range fixture.DiskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t, framework.Restricted)
			b.CreateFilledClaim(block)
			b.CreateVolume(fixture.CloneOf("held", fixture.ClassDisk, "64Mi", block, b.SourceClaim()))
			b.CreateVolume(fixture.CloneOf("atonce", fixture.ClassDiskImmediate, "64Mi", block, b.SourceClaim()))
			asked := fixture.CloneOf("asked", fixture.ClassDisk, "96Mi", block, b.SourceClaim())
			asked.Annotations = map[string]string{fixture.BindImmediately: ""}
			b.CreateVolume(asked)
			b.UntilPhase("held", cdiv1.WaitForFirstConsumer)
			b.Consume("held", "")
			sizes := map[string]int64{"held": 64 * fixture.MiB, "atonce": 64 * fixture.MiB, "asked": 96 * fixture.MiB}
			for name := range sizes {
				b.UntilPhase(name, cdiv1.Succeeded)
				b.ClonedBy(name, "csi-clone")
			}
			b.Delete("consumer-held")
			for name, size := range sizes {
				got := b.BeginsWith(name, fixture.DiskImage(24))
				// A small filesystem keeps more than its usual share for itself.
				if got > size || got < size*8/10 {
					t.Errorf("the disk of %s has %d bytes, its claim %d", name, got, size)
				}
			}
		})
	}
}

// TestVolumeCloneBySnapshot: a source that a running pod writes to is cloned as it is at that moment, by a snapshot that is gone
// afterwards, also into another namespace; and a snapshot that a user took is a source of its own, held or not.
func TestVolumeCloneBySnapshot(t *testing.T) {
	t.Parallel()
	for mode, block := range fixture.DiskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t)
			b.CreateFilledClaim(block)
			b.Consume("golden", "")
			b.WaitRunning("consumer-golden")
			b.CreateVolume(fixture.CloneOf("busy", fixture.ClassDiskImmediate, "64Mi", block, b.SourceClaim()))
			abroad := fixture.NewVolumes(t)
			abroad.CreateVolume(fixture.CloneOf("busy", fixture.ClassDiskImmediate, "64Mi", block, b.SourceClaim()))
			fixture.TakeSnapshot(b.Env, "kept", "golden")
			kept := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.Namespace, Name: "kept"}}
			b.CreateVolume(fixture.CloneOf("restored", fixture.ClassDiskImmediate, "64Mi", block, kept))
			b.CreateVolume(fixture.CloneOf("held", fixture.ClassDisk, "64Mi", block, kept))
			b.UntilPhase("held", cdiv1.WaitForFirstConsumer)
			b.Consume("held", "")
			for _, name := range []string{"busy", "restored", "held"} {
				b.UntilPhase(name, cdiv1.Succeeded)
				b.ClonedBy(name, "snapshot")
			}
			abroad.UntilPhase("busy", cdiv1.Succeeded)
			abroad.ClonedBy("busy", "stream")
			b.WaitRunning("consumer-golden")
			b.Delete("consumer-held")
			b.Delete("consumer-golden")
			b.Wait("the clone's own snapshot to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
				names := snapshots(ctx, b)
				return len(names) == 1 && names[0] == "kept", strings.Join(names, " ")
			})
			for _, name := range []string{"busy", "restored", "held"} {
				b.BeginsWith(name, fixture.DiskImage(24))
			}
			abroad.BeginsWith("busy", fixture.DiskImage(24))
		})
	}
}

func snapshots(ctx context.Context, b *fixture.Volumes) []string {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: fixture.SnapshotGroup, Version: "v1", Kind: "VolumeSnapshotList"})
	if err := b.Kube.List(ctx, list, client.InNamespace(b.Namespace)); err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, s := range list.Items {
		names = append(names, s.GetName())
	}
	return names
}

// TestVolumeCloneLeavesItsNode: a consumer that cannot run where the storage would clone, or restore a snapshot, gets its disk
// streamed from there, and the volume says why. What was restored only to be read from is gone afterwards.
func TestVolumeCloneLeavesItsNode(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.CreateFilledClaim(true)
	source := framework.VolumeNode(b.WaitBound("golden"))
	fixture.TakeSnapshot(b.Env, "kept", "golden")
	kept := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.Namespace, Name: "kept"}}
	elsewhere := ""
	for _, n := range b.ReadyNodes() {
		if n != source {
			elsewhere = n
		}
	}
	ways := map[string]string{"copy": "csi-clone", "restored": "snapshot"}
	for name, from := range map[string]cdiv1.DataVolumeSource{"copy": b.SourceClaim(), "restored": kept} {
		b.CreateVolume(fixture.CloneOf(name, fixture.ClassDisk, "64Mi", true, from))
		b.UntilPhase(name, cdiv1.WaitForFirstConsumer)
		b.ClonedBy(name, ways[name])
		b.Consume(name, elsewhere)
	}
	for name := range ways {
		b.Until(name, "to say why it is streamed", func(dv *cdiv1.DataVolume) bool {
			return strings.Contains(fixture.ReadyMessageOf(dv), "the source is on node "+source) && strings.Contains(fixture.ReadyMessageOf(dv), "consumer-"+name+" cannot run") ||
				dv.Status.Phase == cdiv1.Succeeded
		})
		b.UntilPhase(name, cdiv1.Succeeded)
		b.ClonedBy(name, "stream")
		if why := b.ReadClaim(name).Annotations["cdi.kubevirt.io/cloneFallbackReason"]; !strings.Contains(why, "the source is on node "+source) {
			t.Errorf("claim %s says %q", name, why)
		}
		if got := framework.VolumeNode(b.WaitBound(name)); got != elsewhere {
			t.Errorf("%s is on %s, its consumer on %s", name, got, elsewhere)
		}
		if mode := b.ReadClaim(name).Spec.VolumeMode; mode == nil || *mode != corev1.PersistentVolumeBlock {
			t.Errorf("the volume mode of %s is %v", name, mode)
		}
		b.Delete("consumer-" + name)
		b.Holds(name, fixture.DiskImage(24), 64*fixture.MiB)
	}
	b.Wait("nothing to be left but the disks and the snapshot", fixture.Patience, func(ctx context.Context) (bool, string) {
		var claims corev1.PersistentVolumeClaimList
		if err := b.Kube.List(ctx, &claims, client.InNamespace(b.Namespace)); err != nil {
			return false, err.Error()
		}
		left := append(b.WorkersOf(ctx), snapshots(ctx, b)...)
		for i := range claims.Items {
			left = append(left, claims.Items[i].Name)
		}
		return len(left) == 4, strings.Join(left, " ")
	})
}
