package identity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

func volume(uid types.UID, s corev1.PersistentVolumeSource) Disk {
	return Volume(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: s}})
}

func network(t *testing.T, s kubevirt.NetworkSource, servers ...string) Disk {
	t.Helper()
	d, err := Network(s, servers...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func iscsi(t *testing.T, target string, lun int32) Disk {
	t.Helper()
	return network(t, kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Portal: target, LUN: lun}})
}

func rbd(t *testing.T, pool, namespace, image string) Disk {
	t.Helper()
	return network(t, kubevirt.NetworkSource{RBD: &kubevirt.RBDSource{Pool: pool, Namespace: namespace, Image: image}})
}

func nbd(t *testing.T, host string, port int, export string, servers ...string) Disk {
	t.Helper()
	s := &kubevirt.NBDSource{Host: kubevirt.NetworkHost{Name: host}, Export: export}
	if port != 0 {
		s.Host.Port = new(intstr.FromInt(port))
	}
	return network(t, kubevirt.NetworkSource{NBD: s}, servers...)
}

func gluster(t *testing.T, volume, file string) Disk {
	t.Helper()
	return network(t, kubevirt.NetworkSource{Gluster: &kubevirt.GlusterSource{Volume: volume, Path: file}})
}

func web(t *testing.T, address string) Disk {
	t.Helper()
	return network(t, kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{URL: address}})
}

func local(uid types.UID, node, path string) Disk {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: path}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	return Volume(pv)
}

func fc(uid types.UID, lun int32, ports ...string) Disk {
	return volume(uid, corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{TargetWWNs: ports, Lun: &lun}})
}

// TestFormer: a volume whose identity is another than before has both; one whose identity is as it was has one.
func TestFormer(t *testing.T) {
	nfs := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
	nfs.Spec.NFS = &corev1.NFSVolumeSource{Server: "nas", Path: "/a"}
	if former, is := Former(nfs); !is || former != byUID(nfs) {
		t.Errorf("a volume of NFS was %v, %v", former, is)
	}
	csi := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
	csi.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
	for name, pv := range map[string]*corev1.PersistentVolume{"CSI": csi, "no source": {}} {
		if former, is := Former(pv); is {
			t.Errorf("a volume of %s was %v", name, former)
		}
	}
}

// TestSameDisk: what is the same disk has one identity, however it is reached.
func TestSameDisk(t *testing.T) {
	csi := func(handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "local.example", VolumeHandle: handle}}
	}
	for _, c := range []struct {
		name string
		a, b Disk
		same bool
	}{
		{"a target by another case", iscsi(t, "iqn.2026-01.example:A", 1), iscsi(t, "iqn.2026-01.example:a", 1), true},
		{"another LUN", iscsi(t, "iqn.2026-01.example:a", 1), iscsi(t, "iqn.2026-01.example:a", 2), false},
		{"a LUN through a claim", iscsi(t, "iqn.2026-01.example:a", 1), volume("", corev1.PersistentVolumeSource{
			ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.example:a", Lun: 1}}), true},
		{"an image in the default pool", rbd(t, "", "", "disk"), rbd(t, "rbd", "", "disk"), true},
		{"an image through a claim", rbd(t, "pool", "", "disk"), volume("", corev1.PersistentVolumeSource{
			RBD: &corev1.RBDPersistentVolumeSource{RBDPool: "pool", RBDImage: "disk"}}), true},
		{"an image through its CSI driver", rbd(t, "pool", "team", "csi-vol-1"), volume("", corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "rook-ceph.rbd.csi.ceph.com", VolumeHandle: "0001-x",
				VolumeAttributes: map[string]string{"pool": "pool", "radosNamespace": "team", "imageName": "csi-vol-1"}}}), true},
		{"an image made by hand, through its CSI driver", rbd(t, "pool", "", "disk"), volume("", corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "rbd.csi.ceph.com", VolumeHandle: "disk",
				VolumeAttributes: map[string]string{"pool": "pool", "staticVolume": "true", "imageName": "something else"}}}), true},
		{"names that run into each other", rbd(t, "a", "b/c", "d"), rbd(t, "a/b", "c", "d"), false},
		{"two volumes of one handle", volume("", csi("h")), volume("other", csi("h")), true},
		{"two handles", volume("", csi("h")), volume("", csi("i")), false},
		{"two volumes of no driver", volume("", corev1.PersistentVolumeSource{}), volume("other", corev1.PersistentVolumeSource{}), false},
		{"a local disk by two volumes", local("a", "node1", "/mnt/ssd"), local("b", "node1", "/mnt/ssd/"), true},
		{"a local disk on another node", local("a", "node1", "/mnt/ssd"), local("a", "node2", "/mnt/ssd"), false},
		{"a directory of a node by two volumes", volume("a", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/d"}}),
			volume("b", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/d/"}}), true},
		{"a directory of NFS by two volumes", volume("a", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "NAS.example.", Path: "/a"}}),
			volume("b", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas.example", Path: "/a/"}}), true},
		{"another directory of NFS", volume("a", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas.example", Path: "/a"}}),
			volume("b", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas.example", Path: "/b"}}), false},
		{"a LUN on Fibre Channel by two volumes", fc("a", 1, "50:0A", "50:0B"), fc("b", 1, "0x500b", "0x500a"), true},
		{"another LUN on Fibre Channel", fc("a", 1, "500a"), fc("b", 2, "500a"), false},
		{"a server's default port", nbd(t, "Disks.Example.", 0, "x"), nbd(t, "disks.example", 10809, "x"), true},
		{"a server by another name, at one address", nbd(t, "a.example", 0, "x", "[fd00::1]:10809"), nbd(t, "b.example", 0, "x", "[fd00::1]:10809"), true},
		{"another export", nbd(t, "disks.example", 0, "x"), nbd(t, "disks.example", 0, "y"), false},
		{"a file by a longer way", gluster(t, "gv0", "a/../b.img"), gluster(t, "gv0", "/b.img"), true},
		{"a page with a password", web(t, "https://u:p@web.example/a.img?token=1#x"), web(t, "https://WEB.example:443/./a.img"), true},
		{"http and https of one server are two ports", web(t, "http://web.example/a"), web(t, "https://web.example/a"), false},
	} {
		if same := c.a == c.b; same != c.same {
			t.Errorf("%s: %q and %q: same is %v", c.name, c.a, c.b, same)
		}
		if c.a.Name() == c.b.Name() != c.same {
			t.Errorf("%s: names %s and %s", c.name, c.a.Name(), c.b.Name())
		}
		if wrong := validation.IsDNS1123Subdomain(c.a.Name()); wrong != nil {
			t.Errorf("%s: %v", c.a.Name(), wrong)
		}
	}
	if _, err := Network(kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{URL: "http://a:b:c/"}}); err == nil {
		t.Error("an address that is none was accepted")
	}
}
