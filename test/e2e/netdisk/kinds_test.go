//go:build e2e

package netdisk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestNetworkDiskNBD: a guest boots from an export over TLS where both sides prove who they are.
func TestNetworkDiskNBD(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	s := y.NBDServer()
	name, file, err := s.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.ApplySecret("certificates", map[string]string{"ca.crt": string(s.Certificates.CA),
		"tls.crt": string(s.Certificates.Client.Certificate), "tls.key": string(s.Certificates.Client.Key)})
	vm := y.NetworkMachine("block", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
		Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: name,
		TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}}}})
	y.BootFromNetwork(vm)
	writes(y, vm, file)
	key := strings.Split(string(s.Certificates.Client.Key), "\n")
	untold(y, vm, key[1])
}

// TestNetworkDiskRBD: a guest boots from an image of Ceph with a key of cephx.
func TestNetworkDiskRBD(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	c := y.CephServer()
	image, err := c.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.ApplySecret("ceph", map[string]string{"key": c.Key})
	vm := y.NetworkMachine("rados", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{RBD: &kubevirt.RBDSource{
		Monitors: []string{c.Monitor}, Pool: c.Pool, Image: image, User: c.User, SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}}}})
	y.BootFromNetwork(vm)
	y.GuestWrites(vm)
	file := filepath.Join(t.TempDir(), "exported")
	if err := c.Export(image, file); err != nil {
		t.Fatal(err)
	}
	written(y, file)
	untold(y, vm, c.Key)
}

// TestNetworkDiskGluster: a guest boots from a file in a Gluster volume.
func TestNetworkDiskGluster(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	g := y.GlusterServer()
	name, file, err := g.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	vm := y.NetworkMachine("bricks", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{Gluster: &kubevirt.GlusterSource{
		Hosts: []kubevirt.NetworkHost{{Name: g.Address}}, Volume: g.Volume, Path: name}}}})
	y.BootFromNetwork(vm)
	writes(y, vm, file)
}

// TestNetworkDiskHTTP: a guest boots from a qcow2 at an https URL that asks for a password, with a copy of its own for what
// it writes; another disk at a plain URL is only read.
func TestNetworkDiskHTTP(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	w := y.WebDiskServer()
	y.ApplySecret("web", map[string]string{"accessKeyId": w.User, "secretKey": w.Password})
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "ca"}, Data: map[string]string{"ca.pem": string(w.CA)}}
	if err := y.Kube.Create(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	vm := y.NetworkMachine("web", kubevirt.Volume{Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite},
		VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{URL: w.SecureURL + "/private/" + testguest.QCOW2Compressed,
			SecretRef: &corev1.LocalObjectReference{Name: "web"}, CertConfigMap: "ca", Format: kubevirt.FormatQCOW2}}}})
	spec := &vm.Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, kubevirt.Volume{Name: "read", AccessMode: kubevirt.ReadShared,
		VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{URL: w.URL + "/" + testguest.Raw}}}})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirt.Disk{Name: "read", Serial: "read"})
	before, err := os.ReadFile(fixture.GuestDir + "/" + testguest.QCOW2Compressed)
	if err != nil {
		t.Fatal(err)
	}
	y.BootFromNetwork(vm)
	y.GuestWrites(vm)
	y.TypeLine(vm, "write serial=read 67108864 512 1")
	y.GuestSays(vm, "error: write serial=read 67108864 512 1")
	after, err := os.ReadFile(fixture.GuestDir + "/" + testguest.QCOW2Compressed)
	if err != nil || string(before) != string(after) {
		t.Errorf("the file on the server has changed: %v", err)
	}
	untold(y, vm, w.Password)
}
