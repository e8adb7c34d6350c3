//go:build e2e

package netdisk

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// adds adds a network disk to a running machine, for this run or permanently, and has the guest write to it.
func adds(y *fixture.Machines, vm *kubevirt.VirtualMachine, kind, name string, source *kubevirt.HotplugVolumeSource) {
	y.T.Helper()
	o := fixture.AddVolumeOptions(name, kubevirt.BusVirtio)
	o.VolumeSource = source
	y.Subresource(kind, vm.Name, "addvolume", o)
	y.WaitPlugged(vm, name)
	y.GuestSays(vm, "serial="+name+" size=")
	area := fmt.Sprintf("serial=%s %d 65536 %d", name, testguest.DataOffset, fixture.WriteSeed)
	for _, verb := range []string{"write ", "verify "} {
		y.TypeLine(vm, verb+area)
		y.GuestSays(vm, "berth-guest: "+verb+area+": ")
	}
}

// identityOf returns the identity of a network disk.
func identityOf(y *fixture.Machines, s kubevirt.NetworkSource) identity.Disk {
	y.T.Helper()
	id, err := identity.Network(s)
	if err != nil {
		y.T.Fatal(err)
	}
	return id
}

// removes takes it out again and waits until nothing of it is left: its pods, its status and its record.
func removes(y *fixture.Machines, vm *kubevirt.VirtualMachine, kind, name string, id identity.Disk) {
	y.T.Helper()
	y.Subresource(kind, vm.Name, "removevolume", kubevirt.RemoveVolumeOptions{Name: name})
	y.Wait("nothing of "+name+" to be left", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		pods, err := y.Client.CoreV1().Pods(y.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "berth.dev/volume=" + name})
		if err != nil {
			return false, err.Error()
		}
		var record accessv1.DiskAccess
		err = y.Kube.Get(ctx, client.ObjectKey{Name: id.Name()}, &record)
		return i != nil && fixture.VolumeStatusOf(i, name) == nil && len(pods.Items) == 0 && err != nil && client.IgnoreNotFound(err) == nil,
			fmt.Sprintf("%+v, %d pods, record: %v", fixture.VolumeStatusOf(i, name), len(pods.Items), err)
	})
}

// has compares the server's bytes with what adds had the guest write.
func has(y *fixture.Machines, file string) {
	y.T.Helper()
	got, want := make([]byte, 65536), make([]byte, 65536)
	_, _ = pattern.Stream(fixture.WriteSeed).ReadAt(want, 0)
	f, err := os.Open(file)
	if err != nil {
		y.T.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(got, testguest.DataOffset); err != nil || !bytes.Equal(got, want) {
		y.T.Errorf("%s has other bytes than the guest wrote (%v)", file, err)
	}
}

// plugsStores does it with an image of Ceph and a file of Gluster.
func plugsStores(y *fixture.Machines, vm *kubevirt.VirtualMachine, kind string) {
	y.T.Helper()
	c := y.CephServer()
	image, err := c.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		y.T.Fatal(err)
	}
	y.ApplySecret("ceph", map[string]string{"key": c.Key})
	adds(y, vm, kind, "rados", &kubevirt.HotplugVolumeSource{NetworkSource: kubevirt.NetworkSource{RBD: &kubevirt.RBDSource{
		Monitors: []string{c.Monitor}, Pool: c.Pool, Image: image, User: c.User, SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}}})
	exported := filepath.Join(y.T.TempDir(), "exported")
	if err := c.Export(image, exported); err != nil {
		y.T.Fatal(err)
	}
	has(y, exported)
	untold(y, vm, c.Key)
	removes(y, vm, kind, "rados", identityOf(y, kubevirt.NetworkSource{RBD: &kubevirt.RBDSource{Pool: c.Pool, Image: image}}))

	g := y.GlusterServer()
	name, file, err := g.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		y.T.Fatal(err)
	}
	adds(y, vm, kind, "bricks", &kubevirt.HotplugVolumeSource{NetworkSource: kubevirt.NetworkSource{Gluster: &kubevirt.GlusterSource{
		Hosts: []kubevirt.NetworkHost{{Name: g.Address}}, Volume: g.Volume, Path: name}}})
	has(y, file)
	removes(y, vm, kind, "bricks", identityOf(y, kubevirt.NetworkSource{Gluster: &kubevirt.GlusterSource{Volume: g.Volume, Path: name}}))
}

// TestNetworkDiskHotplug: a running machine is given a LUN with CHAP, an export over TLS, a disk at a URL with a password, an image
// of Ceph, a file of Gluster, and the LUN behind a claim; its guest writes; each is taken out again and is free then.
func TestNetworkDiskHotplug(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("plugged")
	fixture.BootKernel(vm, "disks")
	y.BootFromNetwork(vm)
	const instances, machines = "virtualmachineinstances", "virtualmachines"

	l := y.GuestLUN("frank", "a password of a hot disk")
	lun := identityOf(y, kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)})
	adds(y, vm, instances, "scsi", &kubevirt.HotplugVolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)}})
	has(y, l.File)
	untold(y, vm, l.Password)
	second := y.NetworkMachine("second", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)}}})
	y.CreateMachine(second)
	y.WaitReason(second, "DiskInUse", "machine plugged has it write-exclusive")
	if err := y.Kube.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	removes(y, vm, instances, "scsi", lun)

	n := y.NBDServer()
	export, file, err := n.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.ApplySecret("certificates", map[string]string{"ca.crt": string(n.Certificates.CA),
		"tls.crt": string(n.Certificates.Client.Certificate), "tls.key": string(n.Certificates.Client.Key)})
	adds(y, vm, machines, "block", &kubevirt.HotplugVolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
		Host: kubevirt.NetworkHost{Name: n.Address, Port: new(intstr.FromInt(n.Port))}, Export: export,
		TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}}})
	has(y, file)
	untold(y, vm, strings.Split(string(n.Certificates.Client.Key), "\n")[1])
	removes(y, vm, machines, "block", identityOf(y, kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
		Host: kubevirt.NetworkHost{Name: n.Address, Port: new(intstr.FromInt(n.Port))}, Export: export}}))

	w := y.WebDiskServer()
	y.ApplySecret("web", map[string]string{"accessKeyId": w.User, "secretKey": w.Password})
	o := fixture.AddVolumeOptions("web", kubevirt.BusVirtio)
	o.AccessMode, o.VolumeSource = kubevirt.ReadShared, &kubevirt.HotplugVolumeSource{NetworkSource: kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{
		URL: w.URL + "/" + testguest.Raw, SecretRef: &corev1.LocalObjectReference{Name: "web"}}}}
	y.Subresource(instances, vm.Name, "addvolume", o)
	y.WaitPlugged(vm, "web")
	y.GuestSays(vm, "serial=web size=")
	untold(y, vm, w.Password)
	removes(y, vm, instances, "web", identityOf(y, o.VolumeSource.NetworkSource))

	plugsStores(y, vm, instances)

	ref := vault(y, map[string]string{"node.session.auth.username": l.User, "node.session.auth.password": l.Password})
	y.LetControllerRead(ref)
	y.ConsentToDirect(y.CreateStaticClaim("claimed", y.ISCSIVolume(l, ref), corev1.ReadWriteOnce))
	adds(y, vm, instances, "claimed", &kubevirt.HotplugVolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "claimed", Direct: new(true)}})
	has(y, l.File)
	untold(y, vm, l.Password)
	lent(y, vm, "node.session.auth.username", "node.session.auth.password")
	removes(y, vm, instances, "claimed", lun)
}
