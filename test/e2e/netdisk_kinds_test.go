//go:build e2e

package e2e

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
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
)

var (
	nbdkit  netserver.Once[*netserver.NBD]
	nginx   netserver.Once[*netserver.Web]
	ceph    netserver.Once[*netserver.Ceph]
	gluster netserver.Once[*netserver.Gluster]
)

func init() {
	framework.AtEnd(nbdkit.Close)
	framework.AtEnd(nginx.Close)
	framework.AtEnd(ceph.Close)
	framework.AtEnd(gluster.Close)
}

// server is a server that all tests share.
func server[S interface{ Close() }](y *yard, once *netserver.Once[S], start func() (S, error)) S {
	y.T.Helper()
	s, err := once.Get(start)
	if err != nil {
		y.T.Fatal(err)
	}
	return s
}

func (y *yard) nbd() *netserver.NBD {
	y.T.Helper()
	return server(y, &nbdkit, func() (*netserver.NBD, error) {
		return netserver.StartNBD(y.HostAddress(), serverDir("nbd"), true)
	})
}

func (y *yard) web() *netserver.Web {
	y.T.Helper()
	return server(y, &nginx, func() (*netserver.Web, error) {
		return netserver.StartWeb(y.HostAddress(), serverDir("web"), guestDir)
	})
}

// TestNetworkDiskNBD: a guest boots from an export over TLS where both sides prove who they are.
func TestNetworkDiskNBD(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.nbd()
	name, file, err := s.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.secret("certificates", map[string]string{"ca.crt": string(s.Certificates.CA),
		"tls.crt": string(s.Certificates.Client.Certificate), "tls.key": string(s.Certificates.Client.Key)})
	vm := y.networked("block", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NBD: &kubevirt.NBDSource{
		Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: name,
		TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}}})
	y.boots(vm)
	y.writes(vm, file)
	key := strings.Split(string(s.Certificates.Client.Key), "\n")
	y.untold(vm, key[1])
}

// ceph is the cluster's one Ceph.
func (y *yard) ceph() *netserver.Ceph {
	return server(y, &ceph, func() (*netserver.Ceph, error) { return netserver.StartCeph(y.HostAddress(), serverDir("ceph")) })
}

// gluster is the cluster's one GlusterFS.
func (y *yard) gluster() *netserver.Gluster {
	return server(y, &gluster, func() (*netserver.Gluster, error) {
		return netserver.StartGluster(y.HostAddress(), serverDir("gluster"), guest)
	})
}

// TestNetworkDiskRBD: a guest boots from an image of Ceph with a key of cephx.
func TestNetworkDiskRBD(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.ceph()
	image, err := c.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.secret("ceph", map[string]string{"key": c.Key})
	vm := y.networked("rados", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{RBD: &kubevirt.RBDSource{
		Monitors: []string{c.Monitor}, Pool: c.Pool, Image: image, User: c.User, SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}}})
	y.boots(vm)
	y.guestWrites(vm)
	file := filepath.Join(t.TempDir(), "exported")
	if err := c.Export(image, file); err != nil {
		t.Fatal(err)
	}
	y.written(file)
	y.untold(vm, c.Key)
}

// TestNetworkDiskGluster: a guest boots from a file in a Gluster volume.
func TestNetworkDiskGluster(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	g := y.gluster()
	name, file, err := g.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	vm := y.networked("bricks", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{Gluster: &kubevirt.GlusterSource{
		Hosts: []kubevirt.NetworkHost{{Name: g.Address}}, Volume: g.Volume, Path: name}}})
	y.boots(vm)
	y.writes(vm, file)
}

// TestNetworkDiskHTTP: a guest boots from a qcow2 at an https URL that asks for a password, with a copy of its own for what
// it writes; another disk at a plain URL is only read.
func TestNetworkDiskHTTP(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	w := y.web()
	y.secret("web", map[string]string{"accessKeyId": w.User, "secretKey": w.Password})
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "ca"}, Data: map[string]string{"ca.pem": string(w.CA)}}
	if err := y.kube.Create(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	vm := y.networked("web", kubevirt.Volume{Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite},
		VolumeSource: kubevirt.VolumeSource{HTTP: &kubevirt.HTTPSource{URL: w.SecureURL + "/private/" + testguest.QCOW2Compressed,
			SecretRef: &corev1.LocalObjectReference{Name: "web"}, CertConfigMap: "ca", Format: kubevirt.FormatQCOW2}}})
	spec := &vm.Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, kubevirt.Volume{Name: "read", AccessMode: kubevirt.ReadShared,
		VolumeSource: kubevirt.VolumeSource{HTTP: &kubevirt.HTTPSource{URL: w.URL + "/" + testguest.Raw}}})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirt.Disk{Name: "read", Serial: "read"})
	before, err := os.ReadFile(guestDir + "/" + testguest.QCOW2Compressed)
	if err != nil {
		t.Fatal(err)
	}
	y.boots(vm)
	y.guestWrites(vm)
	y.typeLine(vm, "write serial=read 67108864 512 1")
	y.guestSays(vm, "error: write serial=read 67108864 512 1")
	after, err := os.ReadFile(guestDir + "/" + testguest.QCOW2Compressed)
	if err != nil || string(before) != string(after) {
		t.Errorf("the file on the server has changed: %v", err)
	}
	y.untold(vm, w.Password)
}
