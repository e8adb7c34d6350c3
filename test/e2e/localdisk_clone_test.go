//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// filled makes a claim of class localdisk that holds the image, on any node.
func (b *bed) filled(block bool) {
	b.T.Helper()
	b.volume(volume{name: "golden", class: classDiskImmediate, size: "64Mi", block: block})
	b.untilPhase("golden", cdiv1.Succeeded)
}

// on is a DataVolume of a claim or a snapshot of localdisk.
func cloned(name, class, size string, block bool, source cdiv1.DataVolumeSource) volume {
	return volume{name: name, class: class, size: size, block: block, change: func(dv *cdiv1.DataVolume) { dv.Spec.Source = &source }}
}

func (b *bed) fromClaim() cdiv1.DataVolumeSource {
	return cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"}}
}

// clonedBy fails the test unless the claim was made in that way.
func (b *bed) clonedBy(name, strategy string) {
	b.T.Helper()
	c := b.claim(name)
	if got := c.Annotations["berth.dev/clone"]; got != strategy {
		b.T.Errorf("%s was cloned by %q (%s), want %s", name, got, c.Annotations["cdi.kubevirt.io/cloneFallbackReason"], strategy)
	}
	known := strategy
	if strategy == "stream" {
		known = "copy" // clients know no other word for it
	}
	if got := c.Annotations["cdi.kubevirt.io/cloneType"]; got != known {
		b.T.Errorf("clients see that %s was cloned by %q, want %s", name, got, known)
	}
}

// begins fails the test unless the disk on a claim has these bytes and zeroes after them. It returns the disk's size.
func (b *bed) begins(claim string, data []byte) int64 {
	b.T.Helper()
	script := fmt.Sprintf(`d=/%[1]s/disk.img; if [ -b /dev/%[1]s ]; then d=/dev/%[1]s; fi
head -c %[2]d $d | sha256sum | cut -d ' ' -f 1; tail -c +%[3]d $d | tr -d '\000' | wc -c; cat $d | wc -c`, claim, len(data), len(data)+1)
	out := strings.Fields(b.Run(framework.Pod{Name: "read-" + claim, User: guest, Claims: []string{claim}, Script: script}))
	if len(out) != 3 || out[0] != sum(data, int64(len(data))) || out[1] != "0" {
		b.T.Errorf("claim %s: its disk's first sum, rest and size are %v", claim, out)
		return 0
	}
	size, err := strconv.ParseInt(out[2], 10, 64)
	b.must(err)
	return size
}

// TestVolumeCloneByDriver: where the storage clones by itself no byte is moved. The clone is bound at once or held like any
// other volume, may be bound by the annotation without anybody else, and may be larger, also its disk.
func TestVolumeCloneByDriver(t *testing.T) {
	t.Parallel()
	for mode, block := range diskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, framework.Restricted)
			b.filled(block)
			b.volume(cloned("held", classDisk, "64Mi", block, b.fromClaim()))
			b.volume(cloned("atonce", classDiskImmediate, "64Mi", block, b.fromClaim()))
			asked := cloned("asked", classDisk, "96Mi", block, b.fromClaim())
			asked.annotations = map[string]string{immediately: ""}
			b.volume(asked)
			b.untilPhase("held", cdiv1.WaitForFirstConsumer)
			b.consume("held", "")
			sizes := map[string]int64{"held": 64 * mib, "atonce": 64 * mib, "asked": 96 * mib}
			for name := range sizes {
				b.untilPhase(name, cdiv1.Succeeded)
				b.clonedBy(name, "csi-clone")
			}
			b.Delete("consumer-held")
			for name, size := range sizes {
				got := b.begins(name, image(24))
				// A small filesystem keeps more than its usual share for itself.
				if got > size || got < size*8/10 {
					t.Errorf("the disk of %s has %d bytes, its claim %d", name, got, size)
				}
			}
		})
	}
}

// TestVolumeCloneBySnapshot: a source that a running pod writes to is cloned as it is at that moment, by a snapshot that is gone
// afterwards, also into another namespace; and a snapshot somebody took is a source of its own, held or not.
func TestVolumeCloneBySnapshot(t *testing.T) {
	t.Parallel()
	for mode, block := range diskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.filled(block)
			b.consume("golden", "")
			b.WaitRunning("consumer-golden")
			b.volume(cloned("busy", classDiskImmediate, "64Mi", block, b.fromClaim()))
			abroad := newBed(t)
			abroad.volume(cloned("busy", classDiskImmediate, "64Mi", block, b.fromClaim()))
			snapshot(b.Env, "kept", "golden")
			kept := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.Namespace, Name: "kept"}}
			b.volume(cloned("restored", classDiskImmediate, "64Mi", block, kept))
			b.volume(cloned("held", classDisk, "64Mi", block, kept))
			b.untilPhase("held", cdiv1.WaitForFirstConsumer)
			b.consume("held", "")
			for _, name := range []string{"busy", "restored", "held"} {
				b.untilPhase(name, cdiv1.Succeeded)
				b.clonedBy(name, "snapshot")
			}
			abroad.untilPhase("busy", cdiv1.Succeeded)
			abroad.clonedBy("busy", "stream")
			b.WaitRunning("consumer-golden")
			b.Delete("consumer-held")
			b.Delete("consumer-golden")
			b.Wait("the clone's own snapshot to be gone", patience, func(ctx context.Context) (bool, string) {
				names := b.snapshots(ctx)
				return len(names) == 1 && names[0] == "kept", strings.Join(names, " ")
			})
			for _, name := range []string{"busy", "restored", "held"} {
				b.begins(name, image(24))
			}
			abroad.begins("busy", image(24))
		})
	}
}

func (b *bed) snapshots(ctx context.Context) []string {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: snapshotGroup, Version: "v1", Kind: "VolumeSnapshotList"})
	if err := b.kube.List(ctx, list, client.InNamespace(b.Namespace)); err != nil {
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
	b := newBed(t)
	b.filled(true)
	source := framework.VolumeNode(b.WaitBound("golden"))
	snapshot(b.Env, "kept", "golden")
	kept := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.Namespace, Name: "kept"}}
	elsewhere := ""
	for _, n := range b.ReadyNodes() {
		if n != source {
			elsewhere = n
		}
	}
	ways := map[string]string{"copy": "csi-clone", "restored": "snapshot"}
	for name, from := range map[string]cdiv1.DataVolumeSource{"copy": b.fromClaim(), "restored": kept} {
		b.volume(cloned(name, classDisk, "64Mi", true, from))
		b.untilPhase(name, cdiv1.WaitForFirstConsumer)
		b.clonedBy(name, ways[name])
		b.consume(name, elsewhere)
	}
	for name := range ways {
		b.until(name, "to say why it is streamed", func(dv *cdiv1.DataVolume) bool {
			return strings.Contains(message(dv), "the source is on node "+source) && strings.Contains(message(dv), "consumer-"+name+" cannot run") ||
				dv.Status.Phase == cdiv1.Succeeded
		})
		b.untilPhase(name, cdiv1.Succeeded)
		b.clonedBy(name, "stream")
		if why := b.claim(name).Annotations["cdi.kubevirt.io/cloneFallbackReason"]; !strings.Contains(why, "the source is on node "+source) {
			t.Errorf("claim %s says %q", name, why)
		}
		if got := framework.VolumeNode(b.WaitBound(name)); got != elsewhere {
			t.Errorf("%s is on %s, its consumer on %s", name, got, elsewhere)
		}
		if mode := b.claim(name).Spec.VolumeMode; mode == nil || *mode != corev1.PersistentVolumeBlock {
			t.Errorf("the volume mode of %s is %v", name, mode)
		}
		b.Delete("consumer-" + name)
		b.holds(name, image(24), 64*mib)
	}
	b.Wait("nothing to be left but the disks and the snapshot", patience, func(ctx context.Context) (bool, string) {
		var claims corev1.PersistentVolumeClaimList
		if err := b.kube.List(ctx, &claims, client.InNamespace(b.Namespace)); err != nil {
			return false, err.Error()
		}
		left := append(b.workers(ctx), b.snapshots(ctx)...)
		for i := range claims.Items {
			left = append(left, claims.Items[i].Name)
		}
		return len(left) == 4, strings.Join(left, " ")
	})
}
