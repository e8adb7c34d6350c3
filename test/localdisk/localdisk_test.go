//go:build e2e

// Package localdisk tests the CSI driver on a cluster that has it installed (config/localdisk).
package localdisk

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/test/e2e/framework"
)

const (
	classDisk          = "localdisk"
	classDiskImmediate = "localdisk-immediate"
	diskTopology       = "localdisk.berth.dev/node"

	mib      = 1 << 20
	patience = 4 * time.Minute // for what is small, on a busy machine
)

// disks is a test's namespace with what claims of localdisk need.
type disks struct{ *framework.Env }

// classXFS is the class localdisk with xfs, which grows mounted everywhere; it goes with the test.
func (d disks) classXFS() string {
	d.T.Helper()
	base, err := d.Client.StorageV1().StorageClasses().Get(d.Context(), classDisk, metav1.GetOptions{})
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

// claimFrom creates a claim that begins with the data of another object.
func (d disks) claimFrom(c framework.Claim, kind, group, name string) {
	d.T.Helper()
	mode := corev1.PersistentVolumeFilesystem
	if c.Block {
		mode = corev1.PersistentVolumeBlock
	}
	source := &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
	if group != "" {
		source.APIGroup = &group
	}
	_, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Create(d.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &c.Class, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, DataSource: source,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.Size)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		d.T.Fatal(err)
	}
}

// place is where the data of a claim is inside a pod.
func place(claim string, block bool) string {
	if block {
		return "/dev/" + claim
	}
	return "/" + claim + "/data"
}

// fill writes 16 MiB into a claim, on a node, and returns their sum.
func (d disks) fill(claim, node string, block bool) string {
	d.T.Helper()
	to := place(claim, block)
	return d.Run(framework.Pod{Name: "fill-" + claim, Node: node, Claims: []string{claim},
		Script: "dd if=/dev/urandom of=" + to + " bs=1M count=16 2>/dev/null; sync; dd if=" + to + " bs=1M count=16 2>/dev/null | sha256sum"})
}

func (d disks) sum(claim string, block bool) string {
	d.T.Helper()
	return d.Run(framework.Pod{Name: "read-" + claim, Claims: []string{claim},
		Script: "dd if=" + place(claim, block) + " bs=1M count=16 2>/dev/null | sha256sum"})
}

var diskModes = map[string]bool{"Block": true, "Filesystem": false}

// TestLocaldiskClone: data is where the pod was, a clone has it and is a moment's work, and is larger if asked.
func TestLocaldiskClone(t *testing.T) {
	t.Parallel()
	for mode, block := range diskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := disks{framework.New(t)}
			node := d.ReadyNodes()[0]
			d.Create(framework.Claim{Name: "source", Class: classDisk, Size: "100Mi", Block: block})
			want := d.fill("source", node, block)
			pv := d.WaitBound("source")
			if terms := fmt.Sprint(pv.Spec.NodeAffinity); !strings.Contains(terms, diskTopology) || !strings.Contains(terms, node) {
				t.Errorf("the volume is bound to %s, want node %s", terms, node)
			}
			d.claimFrom(framework.Claim{Name: "clone", Class: classDisk, Size: "200Mi", Block: block}, "PersistentVolumeClaim", "", "source")
			if got := d.sum("clone", block); got != want {
				t.Errorf("the clone has %s, want %s", got, want)
			}
		})
	}
}

// TestLocaldiskSnapshot: a restored claim has what was there then.
func TestLocaldiskSnapshot(t *testing.T) {
	t.Parallel()
	for mode, block := range diskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := disks{framework.New(t)}
			d.Create(framework.Claim{Name: "source", Class: classDiskImmediate, Size: "100Mi", Block: block})
			want := d.fill("source", "", block)
			snapshots := d.Dynamic.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}).
				Namespace(d.Namespace)
			_, err := snapshots.Create(d.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": "snap"},
				"spec": map[string]any{"volumeSnapshotClassName": classDisk, "source": map[string]any{"persistentVolumeClaimName": "source"}},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			d.Wait("the snapshot to be ready", patience, func(ctx context.Context) (bool, string) {
				snap, err := snapshots.Get(ctx, "snap", metav1.GetOptions{})
				if err != nil {
					return false, err.Error()
				}
				ready, _, _ := unstructured.NestedBool(snap.Object, "status", "readyToUse")
				return ready, fmt.Sprint(snap.Object["status"])
			})
			if d.fill("source", "", block) == want {
				t.Fatal("the source did not change")
			}
			d.claimFrom(framework.Claim{Name: "restored", Class: classDisk, Size: "100Mi", Block: block}, "VolumeSnapshot", "snapshot.storage.k8s.io", "snap")
			if got := d.sum("restored", block); got != want {
				t.Errorf("the restored claim has %s, want %s", got, want)
			}
		})
	}
}

// TestLocaldiskGrow: a claim grows under a pod that writes all the time.
func TestLocaldiskGrow(t *testing.T) {
	t.Parallel()
	for mode, block := range diskModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := disks{framework.New(t)}
			d.Create(framework.Claim{Name: "data", Class: d.classXFS(), Size: "400Mi", Block: block})
			seen := "df -k /data | tail -n 1 | awk '{print $2}'"
			if block {
				seen = "echo $(($(blockdev --getsize64 /dev/data) / 1024))"
			}
			nodes := d.ReadyNodes()
			d.Start(framework.Pod{Name: "writer", Node: nodes[len(nodes)-1], Claims: []string{"data"},
				Script: "while :; do dd if=/dev/zero of=" + place("data", block) + " bs=1M count=8 conv=notrunc 2>/dev/null; sync; " + seen + "; sleep 1; done"})
			d.WaitRunning("writer")
			patch := []byte(`{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
			if _, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Patch(d.Context(), "data", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			d.Wait("the pod to see 1 GiB", patience, func(context.Context) (bool, string) {
				lines := strings.Fields(d.Output("writer"))
				if len(lines) == 0 {
					return false, "nothing written yet"
				}
				kib, err := strconv.Atoi(lines[len(lines)-1])
				return err == nil && kib > 900<<10, lines[len(lines)-1] + " KiB"
			})
			d.WaitRunning("writer")
		})
	}
}

// TestLocaldiskAcrossNodes: a clone that would have to cross nodes is refused with the name of the node.
func TestLocaldiskAcrossNodes(t *testing.T) {
	t.Parallel()
	d := disks{framework.New(t)}
	nodes := d.ReadyNodes()
	d.Create(framework.Claim{Name: "source", Class: classDisk, Size: "50Mi", Block: true})
	d.fill("source", nodes[0], true)
	d.claimFrom(framework.Claim{Name: "clone", Class: classDisk, Size: "50Mi", Block: true}, "PersistentVolumeClaim", "", "source")
	d.Start(framework.Pod{Name: "elsewhere", Node: nodes[1], Claims: []string{"clone"}, Script: "true"})
	d.WaitEvent("clone", patience, func(_, message string) bool {
		return strings.Contains(message, "is on node "+nodes[0]) && strings.Contains(message, "this is node "+nodes[1])
	})
}

// TestLocaldiskNodeRestart is not parallel: it stops a node that others would use. What was synced is there afterwards.
func TestLocaldiskNodeRestart(t *testing.T) {
	d := disks{framework.New(t)}
	nodes := d.ReadyNodes()
	node := nodes[len(nodes)-1]
	for mode, block := range diskModes {
		claim := strings.ToLower(mode)
		d.Create(framework.Claim{Name: claim, Class: classDisk, Size: "100Mi", Block: block})
		d.Start(framework.Pod{Name: "use-" + claim, Node: node, Claims: []string{claim},
			Script: "echo kept > " + place(claim, block) + "; sync; echo done; sleep 3600"})
	}
	for mode := range diskModes {
		name := "use-" + strings.ToLower(mode)
		d.Wait(name+" to have written", patience, func(context.Context) (bool, string) {
			out := d.Output(name)
			return strings.Contains(out, "done"), out
		})
	}
	for _, verb := range []string{"stop", "start"} { // start waits until the node is Ready
		if out, err := exec.CommandContext(t.Context(), "../../bin/kubebox", "node", verb, node).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", verb, node, err, out)
		}
	}
	for mode, block := range diskModes {
		claim := strings.ToLower(mode)
		d.Delete("use-" + claim)
		out := d.Run(framework.Pod{Name: "look-" + claim, Claims: []string{claim}, Script: "head -c 4 " + place(claim, block)})
		if strings.TrimSpace(out) != "kept" {
			t.Errorf("%s: after the restart there is %q", mode, out)
		}
	}
}
