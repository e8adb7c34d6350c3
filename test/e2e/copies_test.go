//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/pkg/claim"
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
)

// master is a volume that holds the test guest, and what its bytes are now.
type master struct {
	volume kubevirt.Volume
	sum    func() string // nil: nothing can write to it
}

// golden is a claim with the test guest in it. Its class waits for a consumer: the machine that copies it is the first.
func (y *yard) golden(name, class string, mode corev1.PersistentVolumeMode) {
	y.T.Helper()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.url}},
		Storage: &cdiv1.StorageSpec{StorageClassName: &class, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("288Mi")}}},
	}}
	if err := y.kube.Create(y.Context(), v); err != nil {
		y.T.Fatal(err)
	}
}

// claimed is a master in a claim.
func (y *yard) claimed(name string, mode corev1.PersistentVolumeMode) master {
	y.T.Helper()
	y.golden(name, "localdisk", mode)
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
func (y *yard) served(v kubevirt.Volume, file string) master {
	return master{v, func() string { return y.fileSum(file, 0, -1) }}
}

// fileSum is the sha256 of a part of a file; of all of it if length is negative.
func (y *yard) fileSum(file string, offset, length int64) string {
	y.T.Helper()
	f, err := os.Open(file)
	if err != nil {
		y.T.Fatal(err)
	}
	defer f.Close()
	if length < 0 {
		length = 1 << 62
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, offset, length)); err != nil {
		y.T.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// masters are a master of every kind.
var masters = map[string]func(*yard) master{
	"filesystem": func(y *yard) master { return y.claimed("golden", corev1.PersistentVolumeFilesystem) },
	"block":      func(y *yard) master { return y.claimed("golden-block", corev1.PersistentVolumeBlock) },
	"image": func(*yard) master {
		return master{volume: kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{
			Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}}}
	},
	"nbd": func(y *yard) master {
		s := y.nbd()
		name, file, err := s.Add(guestDir + "/" + testguest.Raw)
		if err != nil {
			y.T.Fatal(err)
		}
		y.secret("certificates", map[string]string{"ca.crt": string(s.Certificates.CA),
			"tls.crt": string(s.Certificates.Client.Certificate), "tls.key": string(s.Certificates.Client.Key)})
		return y.served(kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: name,
			TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}}}, file)
	},
	"iscsi": func(y *yard) master {
		l := y.lun(y.Namespace, "a password of CHAP's") // the server, and its users, are those of all tests
		return y.served(kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{ISCSI: y.iscsiSource(l)}}, l.File)
	},
	"http": func(y *yard) master {
		return y.served(kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{HTTP: &kubevirt.HTTPSource{URL: y.web().URL + "/" + testguest.Raw}}},
			guestDir+"/"+testguest.Raw)
	},
}

// TestCopy: every kind of master is copied in every mode, by guests that have a copy in each mode and boot from one of them. They
// read what the masters have, write and read that back, and the masters are what they were, byte by byte.
func TestCopy(t *testing.T) {
	t.Parallel()
	modes := []kubevirt.CopyMode{kubevirt.CopyOnWrite, kubevirt.CopyOnRead, kubevirt.CopyClone}
	kinds := slices.Sorted(maps.Keys(masters))
	for i, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			close(y.gate.open)
			var sums []func() string
			vm := y.networked("linked", kubevirt.Volume{})
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
			y.boots(vm)
			for _, d := range spec.Domain.Devices.Disks {
				y.beginsAsMaster(vm, d.Serial)
				y.guestWritesTo(vm, d.Serial)
			}
			y.needs(vm, 1)
			for _, sum := range sums {
				if sum() != y.fileSum(guestDir+"/"+testguest.Raw, 0, testguest.DiskSize) {
					t.Error("the master was changed")
				}
			}
		})
	}
}

// beginsAsMaster has the guest read an area of a disk that nobody writes to.
func (y *yard) beginsAsMaster(vm *kubevirt.VirtualMachine, serial string) {
	y.T.Helper()
	const offset, length = 1 << 20, 8 << 20
	y.typeLine(vm, fmt.Sprintf("sha256 serial=%s %d %d", serial, offset, length))
	y.guestSays(vm, fmt.Sprintf("berth-guest: sha256 serial=%s %d %d: %s", serial, offset, length, y.fileSum(guestDir+"/"+testguest.Raw, offset, length)))
}

// needs waits until the copies of a machine have all of their masters, but for so many that are written over theirs, and the
// machine is no holder of the others.
func (y *yard) needs(vm *kubevirt.VirtualMachine, masters int) {
	y.T.Helper()
	reason := "Independent"
	if masters > 0 {
		reason = "OnMaster"
	}
	y.Wait(fmt.Sprintf("machine %s to need %d masters", vm.Name, masters), patience, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		if i == nil {
			return false, "no instance"
		}
		var records accessv1.DiskAccessList
		if err := y.kube.List(ctx, &records); err != nil {
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
	y := newYard(t)
	s, err := netserver.StartNBD(y.HostAddress(), serverDir("nbd-own"), false)
	if err != nil {
		t.Fatal(err)
	}
	framework.AtEnd(s.Close)
	name, _, err := s.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	vm := y.networked("own", kubevirt.Volume{Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnRead}, VolumeSource: kubevirt.VolumeSource{NBD: &kubevirt.NBDSource{
		Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: name}}})
	y.boots(vm)
	y.needs(vm, 0)
	s.Stop()
	const offset, length = 1 << 20, testguest.DiskSize - 1<<20 // most of it was never read by the guest
	y.typeLine(vm, fmt.Sprintf("sha256 serial=root %d %d", offset, length))
	y.guestSays(vm, fmt.Sprintf("berth-guest: sha256 serial=root %d %d: %s", offset, length, y.fileSum(guestDir+"/"+testguest.Raw, offset, length)))
	y.guestWrites(vm)
	y.Stays("the guest to wait for nothing", 15*time.Second, func(ctx context.Context) (bool, string) {
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && vm.Status.Ready, why(vm)
	})
}

// TestCopyOfAMasterInUse: machines that copy a master share it, those of one node at once and without copying it; one that is
// written is not to be copied, and the machine says who writes it.
func TestCopyOfAMasterInUse(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	close(y.gate.open)
	y.golden("golden", "localdisk", corev1.PersistentVolumeFilesystem)
	source := kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "golden"}}
	var linked []*kubevirt.VirtualMachine
	for _, name := range []string{"one", "two", "three"} {
		vm := y.tiny(name)
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: source, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}}}
		y.create(vm)
		linked = append(linked, vm)
	}
	for _, vm := range linked {
		y.status(vm, kubevirt.StatusRunning, boot)
	}
	writer := y.tiny("writer")
	writer.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: source}}
	y.create(writer)
	y.reason(writer, "DiskInUse", "has it read-shared")
	for _, vm := range linked {
		if err := y.kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.status(writer, kubevirt.StatusRunning, boot)
	late := y.tiny("late")
	late.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: source, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}}}
	y.create(late)
	y.reason(late, "DiskInUse", "machine writer has it write-exclusive")
}

// offer makes a class that offers a usage type of the test's own on one node, and says its name.
func (y *yard) offer(usage, node string) string { return y.offerOn(usage, node, "ext4") }

// offerOn is offer with the filesystem of the medium.
func (y *yard) offerOn(usage, node, filesystem string) string {
	y.T.Helper()
	name := y.Namespace + "-" + usage
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{claim.UsageTypePrefix + name: "true"}},
		Parameters:  map[string]string{"csi.storage.k8s.io/fstype": filesystem},
		Provisioner: "localdisk.berth.dev", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: new(true),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: "localdisk.berth.dev/node", Values: []string{node}}}}}}
	if err := y.kube.Create(y.Context(), c); err != nil {
		y.T.Fatal(err)
	}
	y.T.Cleanup(func() { _ = y.kube.Delete(context.Background(), c) })
	return name
}

// copied is a machine without an operating system that has a copy of an image.
func (y *yard) copied(name string, c kubevirt.DiskCopy) *kubevirt.VirtualMachine {
	vm := y.tiny(name)
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", Copy: &c, VolumeSource: kubevirt.VolumeSource{
		ContainerDisk: &kubevirt.ContainerDiskSource{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}}}
	return vm
}

// TestUsageTypes: machines run where the medium is that their copies name; one that no node has leaves its machine unplaced,
// one that nobody offers is said, with those that there are; and nothing is left of a machine that is gone.
func TestUsageTypes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	nodes := y.ReadyNodes()
	fast, slow, nowhere := y.offer("fast", nodes[0]), y.offer("slow", nodes[1]), y.offer("none", "no-such-node")
	room := new(resource.MustParse("64Mi"))
	place := map[string]string{fast: nodes[0], slow: nodes[1]}
	running := map[string]*kubevirt.VirtualMachine{}
	for usage := range place {
		vm := y.copied(strings.TrimPrefix(usage, y.Namespace+"-"), kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage, Capacity: room})
		y.create(vm)
		running[usage] = vm
	}
	unplaced := y.copied("unplaced", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: nowhere, Capacity: room})
	unknown := y.copied("unknown", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: "unheard-of", Capacity: room})
	y.create(unplaced)
	y.create(unknown)
	for usage, vm := range running {
		y.status(vm, kubevirt.StatusRunning, boot)
		if _, launchers := y.pods(t.Context(), vm); launchers[0].Spec.NodeName != place[usage] {
			t.Errorf("machine %s runs on node %s, not %s", vm.Name, launchers[0].Spec.NodeName, place[usage])
		}
	}
	y.reason(unplaced, "LauncherUnschedulable", "node(s)")
	y.reason(unknown, "UsageTypeMissing", fast)
	y.reason(unknown, "UsageTypeMissing", "usage type unheard-of, which no StorageClass offers")

	var volumes []string
	for _, c := range y.copyClaims() {
		volumes = append(volumes, c.Spec.VolumeName)
	}
	if len(volumes) < 2 {
		t.Errorf("the copies are in %v", volumes)
	}
	for _, vm := range []*kubevirt.VirtualMachine{running[fast], running[slow], unplaced, unknown} {
		if err := y.kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.copiesGone(volumes)
}

// copyClaims are the claims of copies.
func (y *yard) copyClaims() []corev1.PersistentVolumeClaim {
	y.T.Helper()
	list, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).List(y.Context(), metav1.ListOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool { return !strings.Contains(c.Name, "-berth-copy-") })
}

// copiesGone waits until the claims of copies and their volumes are gone.
func (y *yard) copiesGone(volumes []string) {
	y.T.Helper()
	y.Wait("nothing to be left of the copies", patience, func(ctx context.Context) (bool, string) {
		if c := y.copyClaims(); len(c) > 0 {
			return false, "claim " + c[0].Name
		}
		for _, name := range volumes {
			if _, err := y.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); name != "" && !apierrors.IsNotFound(err) {
				return false, "volume " + name
			}
		}
		return true, ""
	})
}

// TestCopySpelledAtTheDisk applies the proposal's own YAML, the usage type replaced: the machine stays as it was written, its
// instance has the volume, and the copy is on the medium.
func TestCopySpelledAtTheDisk(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.volume("some-pvc-name", "localdisk")
	usage := y.offer("fast", y.ReadyNodes()[1])
	y.apply(fmt.Sprintf(`
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
	y.status(vm, kubevirt.StatusRunning, boot)
	i := y.instance(t.Context(), vm)
	if len(i.Spec.Volumes) != 1 || i.Spec.Volumes[0].Copy == nil || i.Spec.Volumes[0].Copy.UsageType != usage || i.Spec.Volumes[0].AccessMode != kubevirt.ReadShared {
		t.Errorf("the instance has %+v", i.Spec.Volumes)
	}
	if c := y.copyClaims(); len(c) != 1 || c[0].Spec.StorageClassName == nil || *c[0].Spec.StorageClassName != usage {
		t.Errorf("the copy is in %+v", c)
	}
	if i.Status.NodeName != y.ReadyNodes()[1] {
		t.Errorf("it runs on node %s", i.Status.NodeName)
	}
}

// TestFullCopy: a guest that has filled its copy is paused and says so. In a claim of its own it goes on when the claim has
// grown, and has lost nothing; in a directory of the node its pod is not ended for it.
func TestFullCopy(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	image := kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}
	room := new(resource.MustParse("32Mi"))
	usage := y.offerOn("full", y.ReadyNodes()[0], "xfs") // ext4 grows while it is mounted only where the driver may say so to the kernel
	grows := y.networked("grows", kubevirt.Volume{VolumeSource: image, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage,
		Capacity: new(resource.MustParse("300Mi")), Size: new(resource.MustParse("1Gi"))}})
	stays := y.networked("stays", kubevirt.Volume{VolumeSource: image, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: room}})
	y.create(grows)
	y.create(stays)
	area := fmt.Sprintf("serial=root %d %d %d", testguest.DataOffset, 384<<20, writeSeed)
	for vm, wants := range map[*kubevirt.VirtualMachine]string{grows: area, stays: fmt.Sprintf("serial=root %d %d %d", testguest.DataOffset, 128<<20, writeSeed)} {
		y.status(vm, kubevirt.StatusRunning, boot)
		y.guestSays(vm, "berth-guest: ready")
		y.typeLine(vm, "write "+wants)
	}
	for _, vm := range []*kubevirt.VirtualMachine{grows, stays} {
		y.reason(vm, "GuestPaused", "the copy of volume root is full")
	}
	claims := y.copyClaims()
	if len(claims) != 1 {
		t.Fatalf("the copies are in %d claims", len(claims))
	}
	claims[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Gi")
	if _, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Update(t.Context(), &claims[0], metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	y.guestSays(grows, "berth-guest: write "+area+": ")
	y.typeLine(grows, "verify "+area)
	y.guestSays(grows, "berth-guest: verify "+area+": same")
	y.status(grows, kubevirt.StatusRunning, patience)
	y.reason(stays, "GuestPaused", "the copy of volume root is full") // and its pod is still there
}

// TestCopiesAreDiscarded: nothing is left of a copy, however its machine ends, and the next run begins from the master again.
func TestCopiesAreDiscarded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	usage := y.offer("gone", y.ReadyNodes()[2])
	room := new(resource.MustParse("64Mi"))
	remove := func(vm *kubevirt.VirtualMachine) {
		if err := y.kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	ways := map[string]func(vm *kubevirt.VirtualMachine){
		"deleted": remove,
		"forced": func(vm *kubevirt.VirtualMachine) {
			_, launchers := y.pods(t.Context(), vm)
			zero := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
			if err := y.Client.CoreV1().Pods(y.Namespace).Delete(t.Context(), launchers[0].Name, zero); err != nil {
				t.Fatal(err)
			}
			remove(vm)
		},
		"crashed": func(vm *kubevirt.VirtualMachine) { y.typeLine(vm, "crash"); remove(vm) },
		"off":     func(vm *kubevirt.VirtualMachine) { y.typeLine(vm, "poweroff"); remove(vm) },
	}
	booted := []string{"crashed", "off"} // the others need no operating system
	machines := map[string]*kubevirt.VirtualMachine{}
	for way := range ways {
		vm := y.copied(way, kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage, Capacity: room})
		if slices.Contains(booted, way) {
			vm = y.networked(way, vm.Spec.Template.Spec.Volumes[0])
		}
		vm.Spec.RunStrategy = new(kubevirt.RunOnce)
		y.create(vm)
		machines[way] = vm
	}
	var volumes []string
	for way, vm := range machines {
		y.status(vm, kubevirt.StatusRunning, boot)
		if slices.Contains(booted, way) {
			y.guestSays(vm, "berth-guest: ready")
		}
	}
	for _, c := range y.copyClaims() {
		volumes = append(volumes, c.Spec.VolumeName)
	}
	if len(volumes) != len(ways) {
		t.Errorf("the copies are in %v", volumes)
	}
	for way, end := range ways {
		end(machines[way])
	}
	y.copiesGone(volumes)
}
