//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// serving is the claim that a disk of the machine is in, as its instance says.
func (y *yard) serving(vm *kubevirt.VirtualMachine, volume string) string {
	y.T.Helper()
	for _, v := range y.instance(y.Context(), vm).Status.VolumeStatus {
		if v.Name == volume && v.PersistentVolumeClaimInfo != nil {
			return v.PersistentVolumeClaimInfo.ClaimName
		}
	}
	return ""
}

// claimNames are the names of all claims of the namespace.
func (y *yard) claimNames() []string {
	y.T.Helper()
	list, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).List(y.Context(), metav1.ListOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

// addsClaim adds the disk of a claim to a running machine, for this run alone.
func (y *yard) addsClaim(vm *kubevirt.VirtualMachine, name string, bus kubevirt.DiskBus) {
	y.T.Helper()
	o := added(name, bus)
	o.VolumeSource = &kubevirt.HotplugVolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}}
	y.subresource("virtualmachineinstances", vm.Name, "addvolume", o)
	y.plugged(vm, name)
	y.guestSays(vm, "serial="+name+" size=")
}

// TestMigrationLocalClaims: node-local claims, of a filesystem and of a device, one that a DataVolume filled, and two that were added while
// it runs, follow their machine to another node and back while it runs. When it has stopped they have their names, and their old volumes are gone;
// what was applied from Git is what is there; a snapshot that was taken after the moves is restored; and it starts where its data is.
func TestMigrationLocalClaims(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "64Mi"})
	y.Create(framework.Claim{Name: "device", Class: "localdisk", Size: "64Mi", Block: true})
	claimed := func(name string) kubevirt.Volume {
		return kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}}}
	}
	vm := y.mover("follower", claimed("files"), claimed("device"),
		kubevirt.Volume{Name: "blank", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "follower-blank"}}},
		kubevirt.Volume{Name: "empty", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "follower-blank"}, Spec: blank("local")}}
	git := y.file(vm)
	y.kubectl("apply", "-f", git)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.Create(framework.Claim{Name: "more", Class: "localdisk", Size: "64Mi", Block: true})
	y.Create(framework.Claim{Name: "morefiles", Class: "localdisk", Size: "64Mi"})
	y.addsClaim(vm, "more", kubevirt.BusVirtio)
	y.addsClaim(vm, "morefiles", kubevirt.BusSCSI)
	first, claims := y.claimNames(), []string{"files", "device", "follower-blank", "more", "morefiles"}
	old := map[string]string{}
	for _, name := range claims {
		old[name] = y.WaitBound(name).Name
	}
	disks := []string{"files", "device", "blank", "more", "morefiles", "empty"}
	c := y.churns(vm, disks...)
	for i := range rounds(t) {
		c.moves(fmt.Sprintf("follow-%d", i), func() { y.moves(vm, fmt.Sprintf("follow-%d", i)) })
		for _, volume := range disks[:5] {
			if got := y.serving(vm, volume); strings.HasPrefix(got, "move-") {
				t.Errorf("disk %s is said to be in claim %q, which nobody knows", volume, got)
			}
		}
		old = y.followed(vm, old)
	}
	y.kubectl("diff", "-f", git) // fails if there is one
	y.Wait("the claims of the first move to go", patience, func(context.Context) (bool, string) {
		all := y.claimNames()
		return len(all) == len(first)+len(claims), strings.Join(all, " ")
	})

	y.answers(vm, append(c.commands("calm"), patterns("write", 1, disks[:3]...)...)...)
	y.snapshot("moved", vm.Name)
	y.pattern(vm, "write", 2, "files", "device") // which is not to be there in the end
	at := y.instance(t.Context(), vm).Status.NodeName
	y.run(vm, kubevirt.RunHalted)
	y.status(vm, kubevirt.StatusStopped, boot)
	y.Wait("the claims to have their names and their data", patience, func(context.Context) (bool, string) {
		all := y.claimNames()
		return slices.Equal(all, first), strings.Join(all, " ")
	})
	for _, name := range claims {
		if pv := y.WaitBound(name); pv.Name != old[name] || framework.VolumeNode(pv) != at {
			t.Errorf("claim %s has volume %s on node %s, and the machine was last on %s with %s", name, pv.Name, framework.VolumeNode(pv), at, old[name])
		}
		y.Wait("the volume of claim "+name+" to have its class's reclaim policy", patience, func(context.Context) (bool, string) {
			policy := y.WaitBound(name).Spec.PersistentVolumeReclaimPolicy
			return policy == corev1.PersistentVolumeReclaimDelete, string(policy)
		})
	}
	y.apply(strings.NewReplacer("name: web", "name: "+vm.Name, "Name: online", "Name: moved").Replace(restoring))
	y.restored("back")
	y.run(vm, kubevirt.RunAlways)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.pattern(vm, "verify", 1, disks[:3]...)
	y.kubectl("diff", "-f", git)
	if got := y.serving(vm, "files"); got != "files" {
		t.Errorf("disk files is in claim %s", got)
	}
	y.changesClaim(vm)
	y.nothingOfMoves(vm)
}

// followed: since its machine moved, each claim is bound under its own name to the volume that the machine's launcher writes to, on the
// machine's node, and the volume that it had is gone. It returns the names of the volumes that the claims have now.
func (y *yard) followed(vm *kubevirt.VirtualMachine, old map[string]string) map[string]string {
	y.T.Helper()
	now, handles := map[string]string{}, map[string]bool{}
	_, launchers := y.pods(y.Context(), vm)
	for _, v := range launchers[0].Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			handles[volumeBehind(y.WaitBound(v.PersistentVolumeClaim.ClaimName))] = true
		}
	}
	for name, before := range old {
		c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(y.Context(), name, metav1.GetOptions{})
		if err != nil || c.Status.Phase != corev1.ClaimBound {
			y.T.Fatalf("claim %s is %s when the move has succeeded: %v", name, c.Status.Phase, err)
		}
		pv := y.WaitBound(name)
		at := y.instance(y.Context(), vm).Status.NodeName
		if pv.Name == before || framework.VolumeNode(pv) != at || !handles[volumeBehind(pv)] {
			y.T.Errorf("claim %s has volume %s (%s) on node %s; the machine runs on %s, its disks are %v", name, pv.Name, volumeBehind(pv),
				framework.VolumeNode(pv), at, handles)
		}
		y.volumeGone(before)
		now[name] = pv.Name
	}
	return now
}

// volumeBehind is where the data of a PersistentVolume is, whichever PersistentVolume of it is asked.
func volumeBehind(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.VolumeHandle
	}
	text, err := json.Marshal(pv.Spec.PersistentVolumeSource)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// file writes the machine as its owner has it in Git.
func (y *yard) file(vm *kubevirt.VirtualMachine) string {
	y.T.Helper()
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vm)
	if err != nil {
		y.T.Fatal(err)
	}
	u["apiVersion"], u["kind"] = kubevirt.GroupVersion.String(), "VirtualMachine"
	delete(u, "status")
	unstructured.RemoveNestedField(u, "metadata", "creationTimestamp")
	text, err := json.Marshal(u)
	path := filepath.Join(y.T.TempDir(), vm.Name+".json")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		y.T.Fatal(err)
	}
	return path
}

// inClaim waits until the disk of the machine's first volume has been sent into its new claim.
func (y *yard) inClaim(vm *kubevirt.VirtualMachine, volume, claim string) {
	y.T.Helper()
	y.Wait("disk "+volume+" to be in claim "+claim, moving, func(ctx context.Context) (bool, string) {
		_, launchers := y.pods(ctx, vm)
		return len(launchers) == 1 && y.serving(vm, volume) == claim && y.instance(ctx, vm).Spec.Volumes[0].PersistentVolumeClaim.ClaimName == claim,
			y.kubectl("get", "vmim,vmi", "-o", "wide")
	})
}

// changesClaim: a volume of a running machine is changed to a claim on its own node, and its disk is sent there while its other disks stay where
// they are; and to a claim of another class, and it is sent there.
func (y *yard) changesClaim(vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	run, at := y.instance(y.Context(), vm).UID, y.instance(y.Context(), vm).Status.NodeName
	y.Create(framework.Claim{Name: "beside", Class: "localdisk", Size: "64Mi"})
	y.kubectl("annotate", "persistentvolumeclaim", "beside", selectedNode+"="+at) // so that it has its volume there before anybody uses it
	y.WaitBound("beside")
	c := y.churns(vm, "files", "device", "blank")
	c.moves("to a claim beside", func() {
		y.kubectl("patch", "virtualmachine", vm.Name, "--type=json", "-p", `[{"op": "add", "path": "/spec/updateVolumesStrategy", "value": "Migration"},
			{"op": "replace", "path": "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName", "value": "beside"}]`)
		y.inClaim(vm, "files", "beside")
	})
	if i := y.instance(y.Context(), vm); i.Status.NodeName != at || y.serving(vm, "device") != "device" || y.serving(vm, "blank") != "follower-blank" {
		y.T.Errorf("it is on %s and was on %s; its disks are said to be in %+v", i.Status.NodeName, at, i.Status.VolumeStatus)
	}
	y.Create(framework.Claim{Name: "elsewhere", Class: "local", Size: "96Mi"})
	c.moves("to a claim elsewhere", func() {
		y.kubectl("patch", "virtualmachine", vm.Name, "--type=json", "-p",
			`[{"op": "replace", "path": "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName", "value": "elsewhere"}]`)
		y.inClaim(vm, "files", "elsewhere")
	})
	if got := y.kubectl("get", "vmim", "-o", "name", "-l", kubevirt.LabelVolumeUpdate+"="+vm.Name); strings.Count(got, "\n") != 2 {
		y.T.Errorf("the migrations of its volumes are not kept: %s", got)
	}
	if i := y.instance(y.Context(), vm); i.UID != run || i.Status.MigrationState == nil || i.Status.MigrationState.Failed || i.Status.MigrationState.AbortRequested {
		y.T.Errorf("it was started again, or says of its migration %+v", i.Status.MigrationState)
	}
}

// TestMigrationStopped: the disks of a machine that is stopped, of a filesystem, of a device and of a DataVolume, are copied to another node by
// virtctl migrate. Its claims keep their names and its old volumes go; the machine starts there, with its data. One that is started meanwhile
// waits, and one that is cancelled stays where it was.
func TestMigrationStopped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTool(t, y.Env)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "64Mi"})
	y.Create(framework.Claim{Name: "device", Class: "localdisk", Size: "64Mi", Block: true})
	claimed := func(name string) kubevirt.Volume {
		return kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}}}
	}
	vm := y.mover("still", claimed("files"), claimed("device"),
		kubevirt.Volume{Name: "blank", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "still-blank"}}})
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "still-blank"}, Spec: blank("local")}}
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	disks := []string{"files", "device", "blank"}
	y.pattern(vm, "write", 7, disks...)
	y.run(vm, kubevirt.RunHalted)
	y.status(vm, kubevirt.StatusStopped, boot)
	first, claims, old := y.claimNames(), []string{"files", "device", "still-blank"}, map[string]string{}
	from := ""
	for _, name := range claims {
		pv := y.WaitBound(name)
		old[name], from = pv.Name, framework.VolumeNode(pv)
	}

	v.must("migrate", "still", "--addedNodeSelector=e2e.berth.dev/nowhere="+y.Namespace)
	y.Wait("a migration that finds no node", moving, func(context.Context) (bool, string) {
		said := y.kubectl("get", "vmim", "-o", "wide")
		return strings.Contains(said, "TargetUnschedulable"), said
	})
	y.run(vm, kubevirt.RunAlways)
	y.Wait("the machine to say what it waits for", moving, func(context.Context) (bool, string) {
		said := y.kubectl("get", "vm", "still", "-o", "wide")
		return strings.Contains(said, "virtctl migrate-cancel still"), said
	})
	v.must("migrate-cancel", "still")
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.pattern(vm, "verify", 7, disks...)
	y.pattern(vm, "write", 8, disks...)
	y.run(vm, kubevirt.RunHalted)
	y.status(vm, kubevirt.StatusStopped, boot)

	v.must("migrate", "still")
	y.Wait("the claims to have their names and new volumes", moving, func(ctx context.Context) (bool, string) {
		said := y.kubectl("get", "vmim,pvc", "-o", "wide")
		moved := 0
		for _, name := range claims {
			c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && c.Status.Phase == corev1.ClaimBound && c.Spec.VolumeName != old[name] {
				moved++
			}
		}
		return moved == len(claims) && slices.Equal(y.claimNames(), first), said
	})
	at := ""
	for _, name := range claims {
		pv := y.WaitBound(name)
		if at == "" {
			at = framework.VolumeNode(pv)
		}
		if on := framework.VolumeNode(pv); on == from || on != at {
			t.Errorf("claim %s is on node %s, and was on %s; another is on %s", name, on, from, at)
		}
		y.volumeGone(old[name])
	}
	y.run(vm, kubevirt.RunAlways)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.pattern(vm, "verify", 8, disks...)
	if on := y.instance(t.Context(), vm).Status.NodeName; on != at {
		t.Errorf("the machine runs on %s, and its disks are on %s", on, at)
	}
}

// run changes the run strategy of a machine.
func (y *yard) run(vm *kubevirt.VirtualMachine, s kubevirt.RunStrategy) {
	y.T.Helper()
	y.kubectl("patch", "virtualmachine", vm.Name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"runStrategy":%q}}`, s))
}

func (y *yard) volumeGone(name string) {
	y.T.Helper()
	y.Wait("volume "+name+" to be gone", patience, func(ctx context.Context) (bool, string) {
		pv, err := y.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return true, ""
		}
		return false, string(pv.Status.Phase)
	})
}
