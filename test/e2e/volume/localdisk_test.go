//go:build e2e

package volume

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// class is the class localdisk with xfs, which grows mounted whatever the driver's privileges; it goes with the test.
func class(d fixture.Disks) string {
	d.T.Helper()
	base, err := d.Client.StorageV1().StorageClasses().Get(d.Context(), fixture.ClassDisk, metav1.GetOptions{})
	if err != nil {
		d.T.Fatal(err)
	}
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "xfs-" + d.Namespace}, Provisioner: base.Provisioner, VolumeBindingMode: base.VolumeBindingMode,
		AllowVolumeExpansion: base.AllowVolumeExpansion, Parameters: map[string]string{"csi.storage.k8s.io/fstype": "xfs"},
	}
	if _, err := d.Client.StorageV1().StorageClasses().Create(d.Context(), class, metav1.CreateOptions{}); err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() {
		if err := d.Client.StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}); err != nil {
			d.T.Error(err)
		}
	})
	return class.Name
}

// claimFrom creates a claim that begins with the data of another claim or of a snapshot.
func claimFrom(d fixture.Disks, c framework.Claim, source corev1.TypedLocalObjectReference) {
	d.T.Helper()
	mode := corev1.PersistentVolumeFilesystem
	if c.Block {
		mode = corev1.PersistentVolumeBlock
	}
	_, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Create(d.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &c.Class, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			DataSource: &source, Resources: fixture.StorageRequest(c.Size),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		d.T.Fatal(err)
	}
}

// What is written is synced with conv=fsync: sync would wait for the writes of all processes on the machine.

// sumOf prints the sum of the data of a claim.
func sumOf(claim string, block bool) string {
	return "dd if=" + fixture.DataPath(claim, block) + " bs=1M count=16 2>/dev/null | sha256sum; "
}

// TestLocaldisk: data is where its pod was; a clone and a restored snapshot have what was there then, and may be larger; a claim
// grows under a pod that writes all the time.
func TestLocaldisk(t *testing.T) {
	t.Parallel()
	for mode, block := range fixture.DiskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := fixture.Disks{Env: framework.New(t)}
			class, nodes := class(d), d.ReadyNodes()
			node := nodes[len(nodes)-1]
			d.Create(framework.Claim{Name: "data", Class: class, Size: "400Mi", Block: block})
			want := d.Run(framework.Pod{Name: "fill", Node: node, Claims: []string{"data"},
				Script: "dd if=/dev/urandom of=" + fixture.DataPath("data", block) + " bs=1M count=16 conv=fsync 2>/dev/null; " + sumOf("data", block)})
			if got := framework.VolumeNode(d.WaitBound("data")); got != node {
				t.Errorf("the volume is on %q, its pod was on %q", got, node)
			}
			claimFrom(d, framework.Claim{Name: "clone", Class: class, Size: "500Mi", Block: block},
				corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"})
			if got := d.Run(framework.Pod{Name: "compare-clone", Node: node, Claims: []string{"clone"}, Script: sumOf("clone", block)}); got != want {
				t.Errorf("the clone has %s, want %s", got, want)
			}
			fixture.TakeSnapshot(d.Env, "snap", "data")
			group := fixture.SnapshotGroup
			claimFrom(d, framework.Claim{Name: "restored", Class: class, Size: "400Mi", Block: block},
				corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "snap"})
			growsInUse(d, node, block)
			got := d.Run(framework.Pod{Name: "compare-restored", Node: node, Claims: []string{"restored"}, Script: sumOf("restored", block)})
			if got != want {
				t.Errorf("the restored claim has %s, want %s", got, want)
			}
		})
	}
}

// growsInUse grows claim "data" under a pod that overwrites it.
func growsInUse(d fixture.Disks, node string, block bool) {
	d.T.Helper()
	seen := "df -k /data | tail -n 1 | awk '{print $2}'"
	if block {
		seen = "echo $(($(blockdev --getsize64 /dev/data) / 1024))"
	}
	d.Start(framework.Pod{Name: "writer", Node: node, Claims: []string{"data"},
		Script: "while :; do dd if=/dev/zero of=" + fixture.DataPath("data", block) + " bs=1M count=16 conv=notrunc,fsync 2>/dev/null; " + seen + "; sleep 0.2; done"})
	d.WaitRunning("writer")
	patch := []byte(`{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
	if _, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Patch(d.Context(), "data", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		d.T.Fatal(err)
	}
	d.Wait("the pod to see 1 GiB", fixture.Patience, func(context.Context) (bool, string) {
		lines := strings.Fields(d.Output("writer"))
		if len(lines) == 0 {
			return false, "nothing written yet"
		}
		kib, err := strconv.Atoi(lines[len(lines)-1])
		return err == nil && kib > 900<<10, lines[len(lines)-1] + " KiB"
	})
	d.WaitRunning("writer")
	d.Delete("writer")
}

// TestLocaldiskAcrossNodes: a clone that would have to cross nodes is refused with the name of the node that has the data.
func TestLocaldiskAcrossNodes(t *testing.T) {
	t.Parallel()
	d := fixture.Disks{Env: framework.New(t)}
	nodes := d.ReadyNodes()
	d.Create(framework.Claim{Name: "data", Class: fixture.ClassDiskImmediate, Size: "16Mi", Block: true})
	has := framework.VolumeNode(d.WaitBound("data"))
	lacks := nodes[0]
	if lacks == has {
		lacks = nodes[1]
	}
	claimFrom(d, framework.Claim{Name: "clone", Class: fixture.ClassDisk, Size: "16Mi", Block: true},
		corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"})
	d.Start(framework.Pod{Name: "elsewhere", Node: lacks, Claims: []string{"clone"}, Script: "true"})
	d.WaitEvent("clone", fixture.Patience, func(_, message string) bool {
		return strings.Contains(message, "is on node "+has) && strings.Contains(message, "this is node "+lacks)
	})
}

// TestLocaldiskBindsAtOnce: a class that binds at once does so. The provisioner's own delays for large clusters would nearly
// always exceed the bound for one of ten claims, and ours are far below it.
func TestLocaldiskBindsAtOnce(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	const many, bound = 10, 8 * time.Second
	start := time.Now()
	for n := range many {
		e.Create(framework.Claim{Name: fmt.Sprint("claim-", n), Class: fixture.ClassDiskImmediate, Size: "16Mi", Block: true})
	}
	for n := range many {
		e.WaitBound(fmt.Sprint("claim-", n))
	}
	took := time.Since(start).Round(10 * time.Millisecond)
	t.Logf("%d claims were bound within %s", many, took)
	if took > bound {
		t.Errorf("%d claims were bound after %s, not within %s", many, took, bound)
	}
}
