//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
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
)

// subresource asks the aggregated API for something, as virtctl does.
func (y *yard) subresource(kind, name, verb string, body any) {
	y.T.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		y.T.Fatal(err)
	}
	err = y.Client.CoreV1().RESTClient().Put().AbsPath("/apis/subresources.kubevirt.io/v1/namespaces", y.Namespace, kind, name, verb).
		SetHeader("Content-Type", "application/json").Body(text).Do(y.Context()).Error()
	if err != nil {
		y.T.Fatalf("%s %s: %v", verb, name, err)
	}
}

// adds adds a network disk to a running machine, for this run or for good, and has the guest write to it.
func (y *yard) adds(vm *kubevirt.VirtualMachine, kind, name string, source *kubevirt.HotplugVolumeSource) {
	y.T.Helper()
	o := added(name, kubevirt.BusVirtio)
	o.VolumeSource = source
	y.subresource(kind, vm.Name, "addvolume", o)
	y.plugged(vm, name)
	y.guestSays(vm, "serial="+name+" size=")
	area := fmt.Sprintf("serial=%s %d 65536 %d", name, testguest.DataOffset, writeSeed)
	for _, verb := range []string{"write ", "verify "} {
		y.typeLine(vm, verb+area)
		y.guestSays(vm, "berth-guest: "+verb+area+": ")
	}
}

// removes takes it out again and waits until nothing of it is left: its pods, its status and its record.
func (y *yard) removes(vm *kubevirt.VirtualMachine, kind, name string, id identity.Disk) {
	y.T.Helper()
	y.subresource(kind, vm.Name, "removevolume", kubevirt.RemoveVolumeOptions{Name: name})
	y.Wait("nothing of "+name+" to be left", boot, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		pods, err := y.Client.CoreV1().Pods(y.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "berth.dev/volume=" + name})
		if err != nil {
			return false, err.Error()
		}
		var record accessv1.DiskAccess
		err = y.kube.Get(ctx, client.ObjectKey{Name: id.Name()}, &record)
		return i != nil && statusOf(i, name) == nil && len(pods.Items) == 0 && err != nil && client.IgnoreNotFound(err) == nil,
			fmt.Sprintf("%+v, %d pods, record: %v", statusOf(i, name), len(pods.Items), err)
	})
}

// has compares the server's bytes with what adds had the guest write.
func (y *yard) has(file string) {
	y.T.Helper()
	got, want := make([]byte, 65536), make([]byte, 65536)
	_, _ = pattern.Stream(writeSeed).ReadAt(want, 0)
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
func (y *yard) plugsStores(vm *kubevirt.VirtualMachine, kind string) {
	y.T.Helper()
	c := y.ceph()
	image, err := c.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		y.T.Fatal(err)
	}
	y.secret("ceph", map[string]string{"key": c.Key})
	y.adds(vm, kind, "rados", &kubevirt.HotplugVolumeSource{RBD: &kubevirt.RBDSource{
		Monitors: []string{c.Monitor}, Pool: c.Pool, Image: image, User: c.User, SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}})
	exported := filepath.Join(y.T.TempDir(), "exported")
	if err := c.Export(image, exported); err != nil {
		y.T.Fatal(err)
	}
	y.has(exported)
	y.untold(vm, c.Key)
	y.removes(vm, kind, "rados", identity.RBD(c.Pool, "", image))

	g := y.gluster()
	name, file, err := g.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		y.T.Fatal(err)
	}
	y.adds(vm, kind, "bricks", &kubevirt.HotplugVolumeSource{Gluster: &kubevirt.GlusterSource{
		Hosts: []kubevirt.NetworkHost{{Name: g.Address}}, Volume: g.Volume, Path: name}})
	y.has(file)
	y.removes(vm, kind, "bricks", identity.Gluster(g.Volume, name))
}

// TestNetworkDiskHotplug: a running machine is given a LUN with CHAP, an export over TLS, a disk at a URL with a password, an image
// of Ceph, a file of Gluster, and the LUN behind a claim; its guest writes; each is taken out again and is free then.
func TestNetworkDiskHotplug(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	vm := y.tiny("plugged")
	bootKernel(vm, "disks")
	y.boots(vm)
	const instances, machines = "virtualmachineinstances", "virtualmachines"

	l := y.lun("frank", "a password of a hot disk")
	lun := identity.ISCSI(l.Target, l.Number)
	y.adds(vm, instances, "scsi", &kubevirt.HotplugVolumeSource{ISCSI: y.iscsiSource(l)})
	y.has(l.File)
	y.untold(vm, l.Password)
	second := y.networked("second", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{ISCSI: y.iscsiSource(l)}})
	y.create(second)
	y.reason(second, "DiskInUse", "machine plugged has it write-exclusive")
	if err := y.kube.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	y.removes(vm, instances, "scsi", lun)

	n := y.nbd()
	export, file, err := n.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.secret("certificates", map[string]string{"ca.crt": string(n.Certificates.CA),
		"tls.crt": string(n.Certificates.Client.Certificate), "tls.key": string(n.Certificates.Client.Key)})
	y.adds(vm, machines, "block", &kubevirt.HotplugVolumeSource{NBD: &kubevirt.NBDSource{
		Host: kubevirt.NetworkHost{Name: n.Address, Port: new(intstr.FromInt(n.Port))}, Export: export,
		TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}})
	y.has(file)
	y.untold(vm, strings.Split(string(n.Certificates.Client.Key), "\n")[1])
	y.removes(vm, machines, "block", identity.NBD(n.Address, n.Port, export))

	w := y.web()
	y.secret("web", map[string]string{"accessKeyId": w.User, "secretKey": w.Password})
	o := added("web", kubevirt.BusVirtio)
	o.AccessMode, o.VolumeSource = kubevirt.ReadShared, &kubevirt.HotplugVolumeSource{HTTP: &kubevirt.HTTPSource{
		URL: w.URL + "/" + testguest.Raw, SecretRef: &corev1.LocalObjectReference{Name: "web"}}}
	y.subresource(instances, vm.Name, "addvolume", o)
	y.plugged(vm, "web")
	y.guestSays(vm, "serial=web size=")
	y.untold(vm, w.Password)
	page, err := identity.HTTP(w.URL + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.removes(vm, instances, "web", page)

	y.plugsStores(vm, instances)

	ref := y.vault(map[string]string{"node.session.auth.username": l.User, "node.session.auth.password": l.Password})
	y.mayRead(ref)
	y.consent(y.staticClaim("claimed", y.iscsiVolume(l, ref), corev1.ReadWriteOnce))
	y.adds(vm, instances, "claimed", &kubevirt.HotplugVolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "claimed", Direct: new(true)}})
	y.has(l.File)
	y.untold(vm, l.Password)
	y.lent(vm, "node.session.auth.username", "node.session.auth.password")
	y.removes(vm, instances, "claimed", lun)
}
