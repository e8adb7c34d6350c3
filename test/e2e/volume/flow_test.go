//go:build e2e

package volume

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/pkg/claim"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// usable is how large the disk on a Filesystem claim of so many bytes is.
func usable(t *testing.T, size int64) int64 {
	t.Helper()
	n, err := claim.Usable(size, claim.DefaultOverhead)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestVolumeHeldUntilConsumed is steps 3, 4, 6, 7 and 8 of the flow: a volume whose class binds on first use is held, says so,
// starts no worker, and continues by itself on the node where some pod bound it.
func TestVolumeHeldUntilConsumed(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]fixture.Volume{
		"filesystem": {Class: fixture.ClassWaits, Size: "64Mi"},
		"static":     {Class: fixture.ClassStatic, Size: "64Mi"},
		"block":      {Class: fixture.ClassStatic, Size: "64Mi", Block: true},
		"storage":    {Class: fixture.ClassWaits, Storage: "64Mi"},
		"restricted": {Class: fixture.ClassStatic, Size: "64Mi", Block: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var options []framework.Option
			if name == "restricted" {
				options = append(options, framework.Restricted)
			}
			b := fixture.NewVolumes(t, options...)
			b.CreateVolume(v)
			phases := b.RecordPhases("disk")
			dv := b.UntilPhase("disk", cdiv1.WaitForFirstConsumer)
			if got := fixture.ReadyMessageOf(dv); !strings.Contains(got, "waits for its first consumer") {
				t.Errorf("the message does not say what it waits for: %q", got)
			}
			b.StaysWithoutWorkers()
			if phase := b.ReadClaim("disk").Status.Phase; phase != corev1.ClaimPending {
				t.Fatalf("claim is %s before anything consumed it", phase)
			}

			node := b.ReadyNodes()[1]
			b.Consume("disk", node)
			dv = b.UntilPhase("disk", cdiv1.Succeeded)
			b.Delete("consumer-disk")

			want := []cdiv1.DataVolumePhase{
				cdiv1.WaitForFirstConsumer, cdiv1.ImportScheduled, cdiv1.ImportInProgress, cdiv1.Succeeded,
			}
			if got := phases(); !inOrder(got, want) {
				t.Errorf("phases were %v, want %v among them", got, want)
			}
			if dv.Status.Progress != "100.0%" || dv.Status.RestartCount != 0 || dv.Status.ClaimName != "disk" {
				t.Errorf("status says %+v", dv.Status)
			}
			for _, kind := range []cdiv1.DataVolumeConditionType{cdiv1.DataVolumeReady, cdiv1.DataVolumeBound} {
				if c := fixture.ConditionOf(dv, kind); c.Status != corev1.ConditionTrue {
					t.Errorf("condition %s is %+v", kind, c)
				}
			}
			pvc := b.ReadClaim("disk")
			if got := pvc.Annotations["cdi.kubevirt.io/storage.pod.phase"]; got != "Succeeded" {
				t.Errorf("the claim's pod phase is %q", got)
			}
			if got := framework.VolumeNode(b.WaitBound("disk")); got != node {
				t.Errorf("the volume is on %s, its first consumer was on %s", got, node)
			}
			b.Wait("the worker to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
				names := b.WorkersOf(ctx)
				return len(names) == 0, strings.Join(names, " ")
			})
			size := int64(64 * fixture.MiB)
			if v.Storage == "" && !v.Block {
				size = usable(t, size)
			}
			b.Holds("disk", fixture.DiskImage(24), size)
		})
	}
}

// inOrder: want appears in got in this order, whatever lies between.
func inOrder(got, want []cdiv1.DataVolumePhase) bool {
	for _, w := range want {
		i := slices.Index(got, w)
		if i < 0 {
			return false
		}
		got = got[i+1:]
	}
	return true
}

// TestVolumeAtOnce: with a class that binds at once nothing is held.
func TestVolumeAtOnce(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	phases := b.RecordPhases("disk")
	b.UntilPhase("disk", cdiv1.Succeeded)
	if got := phases(); slices.Contains(got, cdiv1.WaitForFirstConsumer) {
		t.Errorf("held although its class binds at once: %v", got)
	}
}

// TestVolumeBoundByAnnotation: the annotation makes the worker the first consumer; its value does not matter.
func TestVolumeBoundByAnnotation(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "true", "false"} {
		t.Run("value-"+value, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t)
			b.CreateVolume(fixture.Volume{Class: fixture.ClassWaits, Storage: "40Mi", Annotations: map[string]string{fixture.BindImmediately: value}})
			b.UntilPhase("disk", cdiv1.Succeeded)
			b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)
		})
	}
}

// TestVolumeGateOff takes the feature gate out of the CDI resource, so it is not run beside other tests. The worker then binds the
// claim, from the next decision on and without a restart. A machine's disks are where the workers are then, and not where the
// machine may run: it is stuck, which the gate prevents.
func TestVolumeGateOff(t *testing.T) {
	b, y := fixture.NewVolumes(t), fixture.NewMachines(t)
	reserved := b.ReadyNodes()[0]
	b.CreateVolume(fixture.Volume{Name: "held", Class: fixture.ClassWaits, Storage: "40Mi"})
	b.UntilPhase("held", cdiv1.WaitForFirstConsumer)
	toleration := y.TaintNode(reserved) // which workers do not have, that of held neither
	gates(b, nil)
	t.Cleanup(func() { gates(b, []string{"HonorWaitForFirstConsumer"}) })

	stuck := y.TinyMachine("stuck", "local", "local")
	stuck.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: reserved}
	stuck.Spec.Template.Spec.Tolerations = []corev1.Toleration{toleration}
	y.CreateMachine(stuck)
	y.WaitStatus(stuck, kubevirt.StatusUnschedulable, fixture.Patience)
	if !strings.Contains(fixture.ReadyMessage(stuck), "node affinity") {
		t.Errorf("the stuck machine does not say that its disks are elsewhere: %s", fixture.ReadyMessage(stuck))
	}
	if nodes := y.NodesOfClaims("stuck-0", "stuck-1"); nodes[reserved] {
		t.Errorf("a worker bound a claim on %s, which it may not run on: %v", reserved, nodes)
	}

	b.UntilPhase("held", cdiv1.Succeeded)
	b.Holds("held", fixture.DiskImage(24), 40*fixture.MiB)
}

func gates(b *fixture.Volumes, gates []string) {
	b.T.Helper()
	ctx := context.Background() // also called when the test's own context has ended
	var cdi cdiv1.CDI
	if err := b.Kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &cdi); err != nil {
		b.T.Fatalf("read the CDI resource: %v", err)
	}
	before := cdi.DeepCopy()
	if cdi.Spec.Config == nil {
		cdi.Spec.Config = &cdiv1.CDIConfigSpec{}
	}
	cdi.Spec.Config.FeatureGates = gates
	if err := b.Kube.Patch(ctx, &cdi, client.MergeFrom(before)); err != nil {
		b.T.Fatalf("set feature gates: %v", err)
	}
}

// TestVolumeSmall: a blank disk of any size can be had on a real filesystem. Asked for as a disk it has that size; asked for as a
// claim it has what the filesystem leaves.
func TestVolumeSmall(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	sizes := []int64{16, 64, 100, 200}
	blank := func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
		if dv.Spec.Storage != nil { // the profile would choose Block
			mode := corev1.PersistentVolumeFilesystem
			dv.Spec.Storage.VolumeMode = &mode
		}
	}
	for _, size := range sizes {
		b.CreateVolume(fixture.Volume{Name: fmt.Sprint("disk-", size), Class: fixture.ClassDiskImmediate, Storage: fmt.Sprint(size, "Mi"), Change: blank})
		b.CreateVolume(fixture.Volume{Name: fmt.Sprint("claim-", size), Class: fixture.ClassDiskImmediate, Size: fmt.Sprint(size, "Mi"), Change: blank})
	}
	for _, size := range sizes {
		b.UntilPhase(fmt.Sprint("disk-", size), cdiv1.Succeeded)
		b.Holds(fmt.Sprint("disk-", size), nil, size*fixture.MiB)
		b.UntilPhase(fmt.Sprint("claim-", size), cdiv1.Succeeded)
		name := fmt.Sprint("claim-", size)
		got := b.Run(framework.Pod{Name: "look-" + name, Claims: []string{name}, Script: "stat -c %s /" + name + "/disk.img"})
		if n, err := strconv.ParseInt(strings.TrimSpace(got), 10, 64); err != nil || n > usable(t, size*fixture.MiB) || n < size*fixture.MiB*2/3 {
			t.Errorf("a claim of %d MiB has a disk of %q, %v", size, got, err)
		}
	}
}

// TestVolumeBlank: an empty disk on a filesystem is a file; an empty device is zeroed by a worker, because it may have been used
// before (TestBlankDevice), and says that it was preallocated.
func TestVolumeBlank(t *testing.T) {
	t.Parallel()
	blank := func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
	}
	t.Run("filesystem", func(t *testing.T) {
		t.Parallel()
		b := fixture.NewVolumes(t)
		b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", Change: blank})
		b.UntilPhase("disk", cdiv1.Succeeded)
		b.Holds("disk", nil, 40*fixture.MiB)
	})
	t.Run("block", func(t *testing.T) {
		t.Parallel()
		b := fixture.NewVolumes(t)
		b.CreateVolume(fixture.Volume{Class: fixture.ClassStatic, Size: "40Mi", Block: true, Change: func(dv *cdiv1.DataVolume) {
			blank(dv)
			dv.Spec.Preallocation = fixture.Ptr(true)
		}})
		b.UntilPhase("disk", cdiv1.WaitForFirstConsumer)
		phases := b.RecordPhases("disk")
		b.Consume("disk", "")
		b.UntilPhase("disk", cdiv1.Succeeded)
		if got := phases(); !slices.Contains(got, cdiv1.ImportScheduled) {
			t.Errorf("nobody zeroed the device: %v", got)
		}
		b.Delete("consumer-disk")
		if got := b.ReadClaim("disk").Annotations["cdi.kubevirt.io/storage.preallocation"]; got != "true" {
			t.Errorf("the claim says of preallocation %q", got)
		}
		b.Holds("disk", nil, 40*fixture.MiB)
	})
}
