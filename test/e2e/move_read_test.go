//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMoveClaimsRead: what others read of a machine's claim after one move and after three is the data of now. vm status names its node; a
// pod that mounts the claim beside the machine, as a backup tool does, sees the machine's own disk; a clone of it has what the guest wrote
// last. A kubelet that is restarted leaves the disks where they are. A claim that is deleted under the
// running machine stays until the machine stops, and goes with its data then.
func TestMoveClaimsRead(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	b := &bed{Env: y.Env, kube: y.kube, web: &web{}}
	tool := newTool(t, y.Env)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "64Mi"})
	y.Create(framework.Claim{Name: "spare", Class: "localdisk", Size: "64Mi", Block: true})
	named := func(volume, claim string) kubevirt.Volume {
		return kubevirt.Volume{Name: volume, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: claim}}}
	}
	vm := y.mover("server", named("files", "files"), named("spare", "spare"))
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.pattern(vm, "write", 1, "files")

	for n, name := range []string{"first", "second", "third"} {
		old := map[string]string{"files": y.WaitBound("files").Name, "spare": y.WaitBound("spare").Name}
		y.moves(vm, name)
		y.followed(vm, old)
		y.pattern(vm, "write", 2+n, "files")
		if n == 1 {
			continue // after one move, and after three
		}
		at := y.instance(t.Context(), vm).Status.NodeName
		if out := tool.must("vm", "status", vm.Name); !strings.Contains(out, at) || strings.Contains(out, "move-") {
			t.Errorf("after the %s move vm status does not say that claim files is on node %s:\n%s", name, at, out)
		}
		_, launchers := y.pods(t.Context(), vm)
		has := y.kubectl("exec", launchers[0].Name, "-c", "compute", "--", "stat", "-c", "%i", launch.FilesDir+"/files/disk.img")
		reads := y.Run(framework.Pod{Name: "reads-" + name, Node: at, Claims: []string{"files"}, Script: "stat -c %i /files/disk.img"})
		if strings.TrimSpace(has) != strings.TrimSpace(reads) {
			t.Errorf("after the %s move a pod that mounts the claim sees file %q, and the machine's disk is %q", name, reads, has)
		}
		framework.Kubebox(t, "kill", at+"/kubelet")
		y.Wait("the kubelet to be back", patience, func(ctx context.Context) (bool, string) {
			_, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(launchers[0].Name, &corev1.PodLogOptions{Container: "compute", TailLines: new(int64(1))}).DoRaw(ctx)
			return err == nil, fmt.Sprint(err)
		})
	}
	spare := y.WaitBound("spare").Name
	y.kubectl("delete", "pvc", "spare", "--wait=false")
	y.pattern(vm, "write", 4, "spare")
	y.pattern(vm, "verify", 4, "files", "spare")
	if c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(t.Context(), "spare", metav1.GetOptions{}); err != nil || c.DeletionTimestamp == nil {
		t.Errorf("a claim that was deleted under its machine: %v", err)
	}
	y.run(vm, kubevirt.RunHalted)
	y.status(vm, kubevirt.StatusStopped, boot)
	y.volumeGone(spare)
	b.volume(volume{name: "copy", class: "localdisk", storage: "64Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: y.Namespace, Name: "files"}}
		dv.Annotations = map[string]string{"cdi.kubevirt.io/storage.bind.immediate.requested": ""}
	}})
	b.untilPhase("copy", cdiv1.Succeeded)
	second := y.mover("reader", named("files", "copy"))
	y.create(second)
	y.status(second, kubevirt.StatusRunning, boot)
	y.guestSays(second, "berth-guest: ready")
	y.pattern(second, "verify", 4, "files")
}
