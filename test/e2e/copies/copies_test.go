//go:build e2e

package copies

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
)

// master is a volume that holds the test guest, and what its bytes are now.
type master struct {
	volume kubevirt.Volume
	sum    func() string // nil: nothing can write to it
}

// golden is a claim with the test guest in it. Its class waits for a consumer: the machine that copies it is the first.
func golden(y *fixture.Machines, name, class string, mode corev1.PersistentVolumeMode) {
	y.T.Helper()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.GuestURL}},
		Storage: &cdiv1.StorageSpec{StorageClassName: &class, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("288Mi")}}},
	}}
	if err := y.Kube.Create(y.Context(), v); err != nil {
		y.T.Fatal(err)
	}
}

// claimed is a master in a claim.
func claimed(y *fixture.Machines, name string, mode corev1.PersistentVolumeMode) master {
	y.T.Helper()
	golden(y, name, "localdisk", mode)
	disk := "/" + name + "/disk.img"
	if mode == corev1.PersistentVolumeBlock {
		disk = "/dev/" + name
	}
	return master{kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name}}}, func() string {
		out := y.Run(framework.Pod{Name: "sum-" + name, Claims: []string{name}, Script: fmt.Sprintf("head -c %d %s | sha256sum", testguest.DiskSize, disk)})
		return strings.Fields(out)[0]
	}}
}

// served is a master in a file of this machine's that a server has.
func served(y *fixture.Machines, v kubevirt.Volume, file string) master {
	return master{v, func() string { return y.FileSum(file, 0, -1) }}
}

// masters are a master of every kind.
var masters = map[string]func(*fixture.Machines) master{
	"filesystem": func(y *fixture.Machines) master { return claimed(y, "golden", corev1.PersistentVolumeFilesystem) },
	"block":      func(y *fixture.Machines) master { return claimed(y, "golden-block", corev1.PersistentVolumeBlock) },
	"image": func(*fixture.Machines) master {
		return master{volume: kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{
			Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}}}
	},
	"nbd": func(y *fixture.Machines) master {
		s := y.NBDServer()
		name, file, err := s.Add(fixture.GuestDir + "/" + testguest.Raw)
		if err != nil {
			y.T.Fatal(err)
		}
		y.ApplySecret("certificates", map[string]string{"ca.crt": string(s.Certificates.CA),
			"tls.crt": string(s.Certificates.Client.Certificate), "tls.key": string(s.Certificates.Client.Key)})
		return served(y, kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: name,
			TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}}}}, file)
	},
	"iscsi": func(y *fixture.Machines) master {
		l := y.GuestLUN(y.Namespace, "a password of CHAP's") // the server, and its users, are those of all tests
		return served(y, kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)}}}, l.File)
	},
	"http": func(y *fixture.Machines) master {
		return served(y, kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{URL: y.WebDiskServer().URL + "/" + testguest.Raw}}}},
			fixture.GuestDir+"/"+testguest.Raw)
	},
}

// TestCopy: every kind of master is copied in every mode, by guests that have a copy in each mode and boot from one of them. They
// read the content of the masters, write and read that back, and the masters are unchanged, byte by byte.
func TestCopy(t *testing.T) {
	t.Parallel()
	modes := []kubevirt.CopyMode{kubevirt.CopyOnWrite, kubevirt.CopyOnRead, kubevirt.CopyClone}
	kinds := slices.Sorted(maps.Keys(masters))
	for i, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			y := fixture.NewMachines(t)
			close(y.Gate.Open)
			var sums []func() string
			vm := y.NetworkMachine("linked", kubevirt.Volume{})
			spec := &vm.Spec.Template.Spec
			spec.Volumes, spec.Domain.Devices.Disks = nil, nil
			for j, serial := range []string{"root", "second", "third"} {
				m := masters[kinds[(i+j)%len(kinds)]](y)
				m.volume.Name, m.volume.Copy = serial, &kubevirt.DiskCopy{Mode: modes[(i+j)%len(modes)]}
				spec.Volumes = append(spec.Volumes, m.volume)
				spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirt.Disk{Name: serial, Serial: serial})
				if m.sum != nil {
					sums = append(sums, m.sum)
				}
			}
			y.BootFromNetwork(vm)
			for _, d := range spec.Domain.Devices.Disks {
				beginsAsMaster(y, vm, d.Serial)
				y.GuestWritesTo(vm, d.Serial)
			}
			needs(y, vm, 1)
			for _, sum := range sums {
				if sum() != y.FileSum(fixture.GuestDir+"/"+testguest.Raw, 0, testguest.DiskSize) {
					t.Error("the master was changed")
				}
			}
		})
	}
}

// beginsAsMaster has the guest read an area of a disk that was not written to.
func beginsAsMaster(y *fixture.Machines, vm *kubevirt.VirtualMachine, serial string) {
	y.T.Helper()
	const offset, length = 1 << 20, 8 << 20
	y.TypeLine(vm, fmt.Sprintf("sha256 serial=%s %d %d", serial, offset, length))
	y.GuestSays(vm, fmt.Sprintf("berth-guest: sha256 serial=%s %d %d: %s", serial, offset, length, y.FileSum(fixture.GuestDir+"/"+testguest.Raw, offset, length)))
}

// needs waits until the copies of a machine have all of their masters, but for so many that are written over theirs, and the
// machine is no holder of the others.
func needs(y *fixture.Machines, vm *kubevirt.VirtualMachine, masters int) {
	y.T.Helper()
	reason := "Independent"
	if masters > 0 {
		reason = "OnMaster"
	}
	y.Wait(fmt.Sprintf("machine %s to need %d masters", vm.Name, masters), fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		if i == nil {
			return false, "no instance"
		}
		var records accessv1.DiskAccessList
		if err := y.Kube.List(ctx, &records); err != nil {
			return false, err.Error()
		}
		var held []string
		for _, r := range records.Items {
			if slices.ContainsFunc(r.Spec.Holders, func(h accessv1.Holder) bool { return h.UID == i.UID }) {
				held = append(held, r.Spec.Disk)
			}
		}
		at := slices.IndexFunc(i.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == "CopiesIndependent" })
		return at >= 0 && i.Status.Conditions[at].Reason == reason && len(held) <= masters, fmt.Sprintf("it holds %s; %+v", held, i.Status.Conditions)
	})
}

// TestCopyOnReadOutlivesItsServer: a guest whose copy has all of its master does not notice that the server is gone.
func TestCopyOnReadOutlivesItsServer(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	s, err := netserver.StartNBD(y.HostAddress(), fixture.ServerDir("nbd-own"), false)
	if err != nil {
		t.Fatal(err)
	}
	framework.AtEnd(s.Close)
	name, _, err := s.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	vm := y.NetworkMachine("own", kubevirt.Volume{Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnRead}, VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
		Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: name}}}})
	y.BootFromNetwork(vm)
	needs(y, vm, 0)
	s.Stop()
	const offset, length = 1 << 20, testguest.DiskSize - 1<<20 // most of it was never read by the guest
	y.TypeLine(vm, fmt.Sprintf("sha256 serial=root %d %d", offset, length))
	y.GuestSays(vm, fmt.Sprintf("berth-guest: sha256 serial=root %d %d: %s", offset, length, y.FileSum(fixture.GuestDir+"/"+testguest.Raw, offset, length)))
	y.GuestWrites(vm)
	y.Stays("the guest to wait for nothing", 15*time.Second, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && vm.Status.Ready, fixture.ReadyMessage(vm)
	})
}

// TestCopyOfAMasterInUse: machines that copy a master share it, those of one node at once and without copying it; one that is
// written is not to be copied, and the machine says who writes it.
func TestCopyOfAMasterInUse(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	close(y.Gate.Open)
	golden(y, "golden", "localdisk", corev1.PersistentVolumeFilesystem)
	source := kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "golden"}}
	var linked []*kubevirt.VirtualMachine
	for _, name := range []string{"one", "two", "three"} {
		vm := y.TinyMachine(name)
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: source, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}}}
		y.CreateMachine(vm)
		linked = append(linked, vm)
	}
	for _, vm := range linked {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	}
	writer := y.TinyMachine("writer")
	writer.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: source}}
	y.CreateMachine(writer)
	y.WaitReason(writer, "DiskInUse", "has it read-shared")
	for _, vm := range linked {
		if err := y.Kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.WaitStatus(writer, kubevirt.StatusRunning, fixture.BootPatience)
	late := y.TinyMachine("late")
	late.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: source, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}}}
	y.CreateMachine(late)
	y.WaitReason(late, "DiskInUse", "machine writer has it write-exclusive")
}

// TestUsageTypes: machines run where the medium is that their copies name; one that no node has leaves its machine unplaced, one
// that no node offers is reported, with those that exist; and nothing is left of a deleted machine.
func TestUsageTypes(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	nodes := y.ReadyNodes()
	fast, slow, nowhere := y.OfferMedium("fast", nodes[0]), y.OfferMedium("slow", nodes[1]), y.OfferMedium("none", "no-such-node")
	room := new(resource.MustParse("64Mi"))
	place := map[string]string{fast: nodes[0], slow: nodes[1]}
	running := map[string]*kubevirt.VirtualMachine{}
	for usage := range place {
		vm := y.MachineWithCopy(strings.TrimPrefix(usage, y.Namespace+"-"), kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage, Capacity: room})
		y.CreateMachine(vm)
		running[usage] = vm
	}
	unplaced := y.MachineWithCopy("unplaced", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: nowhere, Capacity: room})
	unknown := y.MachineWithCopy("unknown", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: "unheard-of", Capacity: room})
	y.CreateMachine(unplaced)
	y.CreateMachine(unknown)
	for usage, vm := range running {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		if _, launchers := y.PodsOf(t.Context(), vm); launchers[0].Spec.NodeName != place[usage] {
			t.Errorf("machine %s runs on node %s, not %s", vm.Name, launchers[0].Spec.NodeName, place[usage])
		}
	}
	y.WaitReason(unplaced, "LauncherUnschedulable", "node(s)")
	y.WaitReason(unknown, "UsageTypeMissing", fast)
	y.WaitReason(unknown, "UsageTypeMissing", "usage type unheard-of, which no StorageClass offers")

	var volumes []string
	for _, c := range y.CopyClaims() {
		volumes = append(volumes, c.Spec.VolumeName)
	}
	if len(volumes) < 2 {
		t.Errorf("the copies are in %v", volumes)
	}
	for _, vm := range []*kubevirt.VirtualMachine{running[fast], running[slow], unplaced, unknown} {
		if err := y.Kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.CopiesGone(volumes)
}

// TestCopySpelledAtTheDisk applies the proposal's own YAML, the usage type replaced: the machine stays as it was written, its
// instance has the volume, and the copy is on the medium.
func TestCopySpelledAtTheDisk(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.CreateBlankVolume("some-pvc-name", "localdisk")
	usage := y.OfferMedium("fast", y.ReadyNodes()[1])
	y.Apply(fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: seed}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 1
      domain:
        memory: {guest: 32Mi}
        devices:
          disks:
            - source:
                pvc:
                  claimname: some-pvc-name
              access-mode: read-only
              copy:
                mode: copy-on-write
                usage-type: %s
`, usage))
	vm := &kubevirt.VirtualMachine{}
	vm.Namespace, vm.Name = y.Namespace, "seed"
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	i := y.InstanceOf(t.Context(), vm)
	if len(i.Spec.Volumes) != 1 || i.Spec.Volumes[0].Copy == nil || i.Spec.Volumes[0].Copy.UsageType != usage || i.Spec.Volumes[0].AccessMode != kubevirt.ReadShared {
		t.Errorf("the instance has %+v", i.Spec.Volumes)
	}
	if c := y.CopyClaims(); len(c) != 1 || c[0].Spec.StorageClassName == nil || *c[0].Spec.StorageClassName != usage {
		t.Errorf("the copy is in %+v", c)
	}
	if i.Status.NodeName != y.ReadyNodes()[1] {
		t.Errorf("it runs on node %s", i.Status.NodeName)
	}
}

// TestFullCopy: a guest that has filled its copy is paused and says so. In a claim of its own it continues when the claim has
// grown, and has lost nothing; in a directory of the node its pod is not ended for it.
func TestFullCopy(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	image := kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}
	room := new(resource.MustParse("32Mi"))
	usage := y.OfferMediumWith("full", y.ReadyNodes()[0], "xfs") // ext4 grows while it is mounted only where the driver may say so to the kernel
	grows := y.NetworkMachine("grows", kubevirt.Volume{VolumeSource: image, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage,
		Capacity: new(resource.MustParse("300Mi")), Size: new(resource.MustParse("1Gi"))}})
	stays := y.NetworkMachine("stays", kubevirt.Volume{VolumeSource: image, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: room}})
	y.CreateMachine(grows)
	y.CreateMachine(stays)
	area := fmt.Sprintf("serial=root %d %d %d", testguest.DataOffset, 384<<20, fixture.WriteSeed)
	for vm, wants := range map[*kubevirt.VirtualMachine]string{grows: area, stays: fmt.Sprintf("serial=root %d %d %d", testguest.DataOffset, 128<<20, fixture.WriteSeed)} {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		y.GuestSays(vm, "berth-guest: ready")
		y.TypeLine(vm, "write "+wants)
	}
	for _, vm := range []*kubevirt.VirtualMachine{grows, stays} {
		y.WaitReason(vm, "GuestPaused", "the copy of volume root is full")
	}
	claims := y.CopyClaims()
	if len(claims) != 1 {
		t.Fatalf("the copies are in %d claims", len(claims))
	}
	claims[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Gi")
	if _, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Update(t.Context(), &claims[0], metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	y.GuestSays(grows, "berth-guest: write "+area+": ")
	y.TypeLine(grows, "verify "+area)
	y.GuestSays(grows, "berth-guest: verify "+area+": same")
	y.WaitStatus(grows, kubevirt.StatusRunning, fixture.Patience)
	y.WaitReason(stays, "GuestPaused", "the copy of volume root is full") // and its pod is still there
}

// TestCopiesAreDiscarded: nothing is left of a copy, however its machine ends, and the next run begins from the master again.
func TestCopiesAreDiscarded(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	usage := y.OfferMedium("gone", y.ReadyNodes()[2])
	room := new(resource.MustParse("64Mi"))
	remove := func(vm *kubevirt.VirtualMachine) {
		if err := y.Kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	ways := map[string]func(vm *kubevirt.VirtualMachine){
		"deleted": remove,
		"forced": func(vm *kubevirt.VirtualMachine) {
			_, launchers := y.PodsOf(t.Context(), vm)
			zero := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
			if err := y.Client.CoreV1().Pods(y.Namespace).Delete(t.Context(), launchers[0].Name, zero); err != nil {
				t.Fatal(err)
			}
			remove(vm)
		},
		"crashed": func(vm *kubevirt.VirtualMachine) { y.TypeLine(vm, "crash"); remove(vm) },
		"off":     func(vm *kubevirt.VirtualMachine) { y.TypeLine(vm, "poweroff"); remove(vm) },
	}
	booted := []string{"crashed", "off"} // the others need no operating system
	machines := map[string]*kubevirt.VirtualMachine{}
	for way := range ways {
		vm := y.MachineWithCopy(way, kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage, Capacity: room})
		if slices.Contains(booted, way) {
			vm = y.NetworkMachine(way, vm.Spec.Template.Spec.Volumes[0])
		}
		vm.Spec.RunStrategy = new(kubevirt.RunOnce)
		y.CreateMachine(vm)
		machines[way] = vm
	}
	var volumes []string
	for way, vm := range machines {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		if slices.Contains(booted, way) {
			y.GuestSays(vm, "berth-guest: ready")
		}
	}
	for _, c := range y.CopyClaims() {
		volumes = append(volumes, c.Spec.VolumeName)
	}
	if len(volumes) != len(ways) {
		t.Errorf("the copies are in %v", volumes)
	}
	for way, end := range ways {
		end(machines[way])
	}
	y.CopiesGone(volumes)
}
