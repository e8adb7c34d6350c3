//go:build e2e

package move

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMoveClaimsRead: what others read of a machine's claim after one move and after three is the data of now. vm status names its node; a
// pod that mounts the claim beside the machine, as a backup tool does, sees the machine's own disk; a clone of it has what the guest wrote
// last. A kubelet that is restarted leaves the disks where they are. A claim that is deleted under the
// running machine stays until the machine stops, and goes with its data then. It runs alone because it restarts a kubelet.
func TestMoveClaimsRead(t *testing.T) {
	y := fixture.NewMachines(t)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube, Web: &fixture.WebServer{}}
	tool := fixture.NewVirtctl(t, y.Env)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "64Mi"})
	y.Create(framework.Claim{Name: "spare", Class: "localdisk", Size: "64Mi", Block: true})
	named := func(volume, claim string) kubevirt.Volume {
		return kubevirt.Volume{Name: volume, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: claim}}}
	}
	vm := y.MovableMachine("server", named("files", "files"), named("spare", "spare"))
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "write", 1, "files")

	for n, name := range []string{"first", "second", "third"} {
		old := map[string]string{"files": y.WaitBound("files").Name, "spare": y.WaitBound("spare").Name}
		moves(y, vm, name)
		followed(y, vm, old)
		y.RunPattern(vm, "write", 2+n, "files")
		if n == 1 {
			continue // after one move, and after three
		}
		at := y.InstanceOf(t.Context(), vm).Status.NodeName
		if out := tool.Must("vm", "status", vm.Name); !strings.Contains(out, at) || strings.Contains(out, "move-") {
			t.Errorf("after the %s move vm status does not say that claim files is on node %s:\n%s", name, at, out)
		}
		_, launchers := y.PodsOf(t.Context(), vm)
		has := y.Kubectl("exec", launchers[0].Name, "-c", "compute", "--", "stat", "-c", "%i", launcherapi.FilesDir+"/files/disk.img")
		reads := y.Run(framework.Pod{Name: "reads-" + name, Node: at, Claims: []string{"files"}, Script: "stat -c %i /files/disk.img"})
		if strings.TrimSpace(has) != strings.TrimSpace(reads) {
			t.Errorf("after the %s move a pod that mounts the claim sees file %q, and the machine's disk is %q", name, reads, has)
		}
		framework.Kubebox(t, "kill", at+"/kubelet")
		y.Wait("the kubelet to be back", fixture.Patience, func(ctx context.Context) (bool, string) {
			_, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(launchers[0].Name, &corev1.PodLogOptions{Container: "compute", TailLines: new(int64(1))}).DoRaw(ctx)
			return err == nil, fmt.Sprint(err)
		})
	}
	spare := y.WaitBound("spare").Name
	y.Kubectl("delete", "pvc", "spare", "--wait=false")
	y.RunPattern(vm, "write", 4, "spare")
	y.RunPattern(vm, "verify", 4, "files", "spare")
	if c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(t.Context(), "spare", metav1.GetOptions{}); err != nil || c.DeletionTimestamp == nil {
		t.Errorf("a claim that was deleted under its machine: %v", err)
	}
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	volumeGone(y, spare)
	b.CreateVolume(fixture.Volume{Name: "copy", Class: "localdisk", Storage: "64Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: y.Namespace, Name: "files"}}
		dv.Annotations = map[string]string{"cdi.kubevirt.io/storage.bind.immediate.requested": ""}
	}})
	b.UntilPhase("copy", cdiv1.Succeeded)
	second := y.MovableMachine("reader", named("files", "copy"))
	y.CreateMachine(second)
	y.WaitStatus(second, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(second, "berth-guest: ready")
	y.RunPattern(second, "verify", 4, "files")
}
