//go:build e2e

package move

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
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// serving is the claim that a disk of the machine is in, as its instance says.
func serving(y *fixture.Machines, vm *kubevirt.VirtualMachine, volume string) string {
	y.T.Helper()
	for _, v := range y.InstanceOf(y.Context(), vm).Status.VolumeStatus {
		if v.Name == volume && v.PersistentVolumeClaimInfo != nil {
			return v.PersistentVolumeClaimInfo.ClaimName
		}
	}
	return ""
}

// claimNames are the names of all claims of the namespace.
func claimNames(y *fixture.Machines) []string {
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
func addsClaim(y *fixture.Machines, vm *kubevirt.VirtualMachine, name string, bus kubevirt.DiskBus) {
	y.T.Helper()
	o := fixture.AddVolumeOptions(name, bus)
	o.VolumeSource = &kubevirt.HotplugVolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}}
	y.Subresource("virtualmachineinstances", vm.Name, "addvolume", o)
	y.WaitPlugged(vm, name)
	y.GuestSays(vm, "serial="+name+" size=")
}

// TestMigrationLocalClaims: node-local claims, of a filesystem and of a device, one that a DataVolume filled, one of a
// claim template, and two that were added while it runs, follow their machine to another node and back while it runs. When it has stopped they have their names, and their old volumes are gone;
// the objects are as they were applied from Git; a snapshot that was taken after the moves is restored; and it starts where its data is.
func TestMigrationLocalClaims(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "64Mi"})
	y.Create(framework.Claim{Name: "device", Class: "localdisk", Size: "64Mi", Block: true})
	claimed := func(name string) kubevirt.Volume {
		return kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}}}
	}
	vm := y.MovableMachine("follower", claimed("files"), claimed("device"),
		kubevirt.Volume{Name: "blank", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "follower-blank"}}},
		kubevirt.Volume{Name: "empty", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "follower-blank"}, Spec: fixture.BlankDisk("local")}}
	fixture.FromClaimTemplate(vm, "own", "localdisk")
	git := file(y, vm)
	y.Kubectl("apply", "-f", git)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.Create(framework.Claim{Name: "more", Class: "localdisk", Size: "64Mi", Block: true})
	y.Create(framework.Claim{Name: "morefiles", Class: "localdisk", Size: "64Mi"})
	addsClaim(y, vm, "more", kubevirt.BusVirtio)
	addsClaim(y, vm, "morefiles", kubevirt.BusSCSI)
	first, claims := claimNames(y), []string{"files", "device", "follower-blank", "follower-own", "more", "morefiles"}
	old := map[string]string{}
	for _, name := range claims {
		old[name] = y.WaitBound(name).Name
	}
	disks := []string{"files", "device", "blank", "own", "more", "morefiles", "empty"}
	c := churns(y, vm, disks...)
	for i := range rounds(t) {
		c.moves(fmt.Sprintf("follow-%d", i), func() { moves(y, vm, fmt.Sprintf("follow-%d", i)) })
		for _, volume := range disks[:6] {
			if got := serving(y, vm, volume); strings.HasPrefix(got, "move-") {
				t.Errorf("disk %s is said to be in claim %q, which nobody knows", volume, got)
			}
		}
		old = followed(y, vm, old)
	}
	y.Kubectl("diff", "-f", git) // fails if there is one
	y.Wait("the claims of the first move to go", fixture.Patience, func(context.Context) (bool, string) {
		all := claimNames(y)
		return len(all) == len(first)+len(claims), strings.Join(all, " ")
	})

	y.AnswersTo(vm, append(c.commands("calm"), fixture.PatternCommands("write", 1, disks[:4]...)...)...)
	y.SnapshotMachine("moved", vm.Name)
	y.RunPattern(vm, "write", 2, "files", "device") // which is not to be there in the end
	at := y.InstanceOf(t.Context(), vm).Status.NodeName
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	y.Wait("the claims to have their names and their data", fixture.Patience, func(context.Context) (bool, string) {
		all := claimNames(y)
		return slices.Equal(all, first), strings.Join(all, " ")
	})
	for _, name := range claims {
		if pv := y.WaitBound(name); pv.Name != old[name] || framework.VolumeNode(pv) != at {
			t.Errorf("claim %s has volume %s on node %s, and the machine was last on %s with %s", name, pv.Name, framework.VolumeNode(pv), at, old[name])
		}
		y.Wait("the volume of claim "+name+" to have its class's reclaim policy", fixture.Patience, func(context.Context) (bool, string) {
			policy := y.WaitBound(name).Spec.PersistentVolumeReclaimPolicy
			return policy == corev1.PersistentVolumeReclaimDelete, string(policy)
		})
	}
	y.Apply(strings.NewReplacer("name: web", "name: "+vm.Name, "Name: online", "Name: moved").Replace(fixture.RestoreYAML))
	y.WaitRestored("back")
	y.SetRunStrategy(vm, kubevirt.RunAlways)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "verify", 1, disks[:4]...)
	y.Kubectl("diff", "-f", git)
	if got := serving(y, vm, "files"); got != "files" {
		t.Errorf("disk files is in claim %s", got)
	}
	changesClaim(y, vm)
	nothingOfMoves(y, vm)
}

// followed: since its machine moved, each claim is bound under its own name to the volume that the machine's launcher writes to, on the
// machine's node, and the volume that it had is gone. It returns the names of the volumes that the claims have now.
func followed(y *fixture.Machines, vm *kubevirt.VirtualMachine, old map[string]string) map[string]string {
	y.T.Helper()
	now, handles := map[string]string{}, map[string]bool{}
	_, launchers := y.PodsOf(y.Context(), vm)
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
		at := y.InstanceOf(y.Context(), vm).Status.NodeName
		if pv.Name == before || framework.VolumeNode(pv) != at || !handles[volumeBehind(pv)] {
			y.T.Errorf("claim %s has volume %s (%s) on node %s; the machine runs on %s, its disks are %v", name, pv.Name, volumeBehind(pv),
				framework.VolumeNode(pv), at, handles)
		}
		volumeGone(y, before)
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
func file(y *fixture.Machines, vm *kubevirt.VirtualMachine) string {
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

// inClaim waits until the disk of the machine's volume has been sent into its new claim.
func inClaim(y *fixture.Machines, vm *kubevirt.VirtualMachine, volume, claim string) {
	y.T.Helper()
	y.Wait("disk "+volume+" to be in claim "+claim, fixture.MovePatience, func(ctx context.Context) (bool, string) {
		_, launchers := y.PodsOf(ctx, vm)
		named := slices.ContainsFunc(y.InstanceOf(ctx, vm).Spec.Volumes, func(v kubevirt.Volume) bool {
			return v.Name == volume && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		})
		return len(launchers) == 1 && serving(y, vm, volume) == claim && named, y.Kubectl("get", "vmim,vmi", "-o", "wide")
	})
}

// changesClaim: a volume of a running machine is changed to a claim on its own node, and its disk is sent there while its other disks stay where
// they are; and to a claim of another class, together with the disk of a claim template that gives way to a claim, and both are sent there.
func changesClaim(y *fixture.Machines, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	run, at := y.InstanceOf(y.Context(), vm).UID, y.InstanceOf(y.Context(), vm).Status.NodeName
	y.Create(framework.Claim{Name: "beside", Class: "localdisk", Size: "64Mi"})
	y.Kubectl("annotate", "persistentvolumeclaim", "beside", fixture.SelectedNodeAnnotation+"="+at) // so that it has its volume there before anybody uses it
	y.WaitBound("beside")
	c := churns(y, vm, "files", "device", "blank", "own")
	c.moves("to a claim beside", func() {
		y.Kubectl("patch", "virtualmachine", vm.Name, "--type=json", "-p", `[{"op": "add", "path": "/spec/updateVolumesStrategy", "value": "Migration"},
			{"op": "replace", "path": "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName", "value": "beside"}]`)
		inClaim(y, vm, "files", "beside")
	})
	if i := y.InstanceOf(y.Context(), vm); i.Status.NodeName != at || serving(y, vm, "device") != "device" || serving(y, vm, "blank") != "follower-blank" {
		y.T.Errorf("it is on %s and was on %s; its disks are said to be in %+v", i.Status.NodeName, at, i.Status.VolumeStatus)
	}
	y.Create(framework.Claim{Name: "elsewhere", Class: "local", Size: "96Mi"})
	y.Create(framework.Claim{Name: "plain", Class: "localdisk", Size: "64Mi", Block: true}) // as the claim of the template is, by the profile of its class
	c.moves("to claims elsewhere", func() {
		y.Kubectl("patch", "virtualmachine", vm.Name, "--type=json", "-p",
			`[{"op": "replace", "path": "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName", "value": "elsewhere"},
			{"op": "remove", "path": "/spec/volumeClaimTemplates"},
			{"op": "replace", "path": "/spec/template/spec/volumes/4/persistentVolumeClaim/claimName", "value": "plain"}]`)
		inClaim(y, vm, "files", "elsewhere")
		inClaim(y, vm, "own", "plain")
	})
	if got := y.Kubectl("get", "vmim", "-o", "name", "-l", kubevirt.LabelVolumeUpdate+"="+vm.Name); strings.Count(got, "\n") != 2 {
		y.T.Errorf("the migrations of its volumes are not kept: %s", got)
	}
	if i := y.InstanceOf(y.Context(), vm); i.UID != run || i.Status.MigrationState == nil || i.Status.MigrationState.Failed || i.Status.MigrationState.AbortRequested {
		y.T.Errorf("it was started again, or says of its migration %+v", i.Status.MigrationState)
	}
}

// TestMigrationStopped: the disks of a machine that is stopped, of a filesystem, of a device, of a DataVolume and of a claim template, are copied to another node by
// virtctl migrate. Its claims keep their names and its old volumes go; the machine starts there, with its data. One that is started meanwhile
// waits, and one that is cancelled stays where it was.
func TestMigrationStopped(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "64Mi"})
	y.Create(framework.Claim{Name: "device", Class: "localdisk", Size: "64Mi", Block: true})
	claimed := func(name string) kubevirt.Volume {
		return kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}}}
	}
	vm := y.MovableMachine("still", claimed("files"), claimed("device"),
		kubevirt.Volume{Name: "blank", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "still-blank"}}})
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "still-blank"}, Spec: fixture.BlankDisk("local")}}
	fixture.FromClaimTemplate(vm, "own", "localdisk")
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	disks := []string{"files", "device", "blank", "own"}
	y.RunPattern(vm, "write", 7, disks...)
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	first, claims, old := claimNames(y), []string{"files", "device", "still-blank", "still-own"}, map[string]string{}
	from := ""
	for _, name := range claims {
		pv := y.WaitBound(name)
		old[name], from = pv.Name, framework.VolumeNode(pv)
	}

	v.Must("migrate", "still", "--addedNodeSelector=e2e.berth.dev/nowhere="+y.Namespace)
	y.Wait("a migration that finds no node", fixture.MovePatience, func(context.Context) (bool, string) {
		said := y.Kubectl("get", "vmim", "-o", "wide")
		return strings.Contains(said, "TargetUnschedulable"), said
	})
	y.SetRunStrategy(vm, kubevirt.RunAlways)
	y.Wait("the machine to say what it waits for", fixture.MovePatience, func(context.Context) (bool, string) {
		said := y.Kubectl("get", "vm", "still", "-o", "wide")
		return strings.Contains(said, "virtctl migrate-cancel still"), said
	})
	v.Must("migrate-cancel", "still")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "verify", 7, disks...)
	y.RunPattern(vm, "write", 8, disks...)
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)

	v.Must("migrate", "still")
	y.Wait("the claims to have their names and new volumes", fixture.MovePatience, func(ctx context.Context) (bool, string) {
		said := y.Kubectl("get", "vmim,pvc", "-o", "wide")
		moved := 0
		for _, name := range claims {
			c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && c.Status.Phase == corev1.ClaimBound && c.Spec.VolumeName != old[name] {
				moved++
			}
		}
		return moved == len(claims) && slices.Equal(claimNames(y), first), said
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
		volumeGone(y, old[name])
	}
	y.SetRunStrategy(vm, kubevirt.RunAlways)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "verify", 8, disks...)
	if on := y.InstanceOf(t.Context(), vm).Status.NodeName; on != at {
		t.Errorf("the machine runs on %s, and its disks are on %s", on, at)
	}
}

func volumeGone(y *fixture.Machines, name string) {
	y.T.Helper()
	y.Wait("volume "+name+" to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		pv, err := y.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return true, ""
		}
		return false, string(pv.Status.Phase)
	})
}
