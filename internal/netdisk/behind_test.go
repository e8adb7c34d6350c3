package netdisk

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

var login = &corev1.SecretReference{Namespace: "vault", Name: "login"}

func direct(s kubevirt.NetworkSource) Direct { return Direct{NetworkSource: s} }

func TestOfVolume(t *testing.T) {
	const iqn = "iqn.2017-01.io.kubevirt:sn.42"
	iscsi := func(change func(*corev1.ISCSIPersistentVolumeSource)) corev1.PersistentVolumeSource {
		s := &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.5", IQN: iqn, Lun: 2, ISCSIInterface: "default"}
		change(s)
		return corev1.PersistentVolumeSource{ISCSI: s}
	}
	csi := func(attributes ...string) corev1.PersistentVolumeSource {
		a := map[string]string{"pool": "vms", "imageName": "csi-vol-1", "clusterID": "c"}
		for i := 0; i < len(attributes); i += 2 {
			a[attributes[i]] = attributes[i+1]
		}
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "rbd.csi.ceph.com", VolumeHandle: "0001", NodeStageSecretRef: login, VolumeAttributes: a}}
	}
	none := csi("monitors", "m")
	none.CSI.NodeStageSecretRef = nil
	for name, c := range map[string]struct {
		source   corev1.PersistentVolumeSource
		monitors string
		want     *Behind
		why      string
	}{
		"a directory": {source: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
		"another CSI": {source: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "x"}}},
		"a LUN": {source: iscsi(func(*corev1.ISCSIPersistentVolumeSource) {}), want: &Behind{Direct: direct(kubevirt.NetworkSource{
			ISCSI: &kubevirt.ISCSISource{Host: kubevirt.NetworkHost{Name: "10.0.0.5"}, Portal: iqn, LUN: 2}})}},
		"a LUN with all": {source: iscsi(func(s *corev1.ISCSIPersistentVolumeSource) {
			s.TargetPortal, s.Portals, s.ReadOnly = "[fd00::5]:3261", []string{"[fd00::5]:3261", "10.0.0.6"}, true
			s.SessionCHAPAuth, s.SecretRef, s.InitiatorName = true, login, new("iqn.2026-01.example:vm")
		}), want: &Behind{Secret: login, Direct: Direct{ReadOnly: true, Portals: []kubevirt.NetworkHost{{Name: "10.0.0.6"}}, NetworkSource: kubevirt.NetworkSource{
			ISCSI: &kubevirt.ISCSISource{Host: kubevirt.NetworkHost{Name: "fd00::5", Port: new(intstr.FromInt(3261))}, Portal: iqn, LUN: 2, Initiator: "iqn.2026-01.example:vm"}}}}},
		"a Secret for discovery only": {source: iscsi(func(s *corev1.ISCSIPersistentVolumeSource) { s.DiscoveryCHAPAuth, s.SecretRef = true, login }),
			want: &Behind{Direct: direct(kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Host: kubevirt.NetworkHost{Name: "10.0.0.5"}, Portal: iqn, LUN: 2}})}},
		"a card of the node": {source: iscsi(func(s *corev1.ISCSIPersistentVolumeSource) { s.ISCSIInterface = "be2iscsi" }), why: "interface be2iscsi"},
		"CHAP with nothing":  {source: iscsi(func(s *corev1.ISCSIPersistentVolumeSource) { s.SessionCHAPAuth = true }), why: "names no Secret"},
		"a port in words":    {source: iscsi(func(s *corev1.ISCSIPersistentVolumeSource) { s.TargetPortal = "h:iscsi" }), why: "no port that is a number"},
		"an image": {source: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"m:1"}, RBDImage: "i", RadosUser: "u", SecretRef: login}},
			want: &Behind{Secret: login, Direct: direct(kubevirt.NetworkSource{RBD: &kubevirt.RBDSource{Monitors: []string{"m:1"}, Pool: "rbd", Image: "i", User: "u"}})}},
		"a keyring of the node": {source: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"m"}, RBDImage: "i", Keyring: "/etc/ceph/keyring"}},
			why: "in a file of the nodes"},
		"a name of two": {source: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"m"}, RBDImage: "i/j", SecretRef: login}}, why: "no name that QEMU"},
		"ceph-csi": {source: csi("radosNamespace", "team"), monitors: "a, b:3300,", want: &Behind{Secret: login, Direct: direct(kubevirt.NetworkSource{
			RBD: &kubevirt.RBDSource{Monitors: []string{"a", "b:3300"}, Pool: "vms", Namespace: "team", Image: "csi-vol-1"}})}},
		"ceph-csi by hand": {source: csi("staticVolume", "true", "monitors", "m"), want: &Behind{Secret: login, Direct: direct(kubevirt.NetworkSource{
			RBD: &kubevirt.RBDSource{Monitors: []string{"m"}, Pool: "vms", Image: "0001"}})}},
		"ceph-csi without monitors": {source: csi(), why: AnnMonitors},
		"ceph-csi, encrypted":       {source: csi("encrypted", "true"), monitors: "a", why: "encrypted"},
		"ceph-csi without a Secret": {source: none, why: "nodeStageSecretRef"},
		"ceph-csi without an image": {source: csi("imageName", ""), monitors: "a", why: "a pool and an image"},
	} {
		got, why := OfVolume(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: c.source}}, c.monitors)
		if diff := cmp.Diff(c.want, got); diff != "" || !strings.Contains(why, c.why) || why != "" && c.why == "" {
			t.Errorf("%s: %q (-want +got):\n%s", name, why, diff)
		}
	}
}

// TestAnnotation: a volume's own word counts before its class's, also if it is no.
func TestAnnotation(t *testing.T) {
	class := map[string]string{AnnDirect: "true"}
	for said, want := range map[string]string{"": "true", "false": "false"} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		if said != "" {
			pv.Annotations[AnnDirect] = said
		}
		if got := Annotation(AnnDirect, pv, class); got != want {
			t.Errorf("%q on the volume: %q", said, got)
		}
	}
}

// TestServers: the servers of a volume are known if all are addresses.
func TestServers(t *testing.T) {
	iscsi := func(portals ...string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: portals[0], Portals: portals[1:]}}
	}
	for name, row := range map[string]struct {
		source corev1.PersistentVolumeSource
		want   []string
	}{
		"its port is the protocol's": {iscsi("10.0.0.1"), []string{"10.0.0.1:3260"}},
		"several, in one order":      {iscsi("10.0.0.2:3261", "10.0.0.1", "10.0.0.1:3260"), []string{"10.0.0.1:3260", "10.0.0.2:3261"}},
		"of the new kind":            {iscsi("[fd00::1]"), []string{"[fd00::1]:3260"}},
		"of both kinds":              {iscsi("[::ffff:10.0.0.1]:3260"), []string{"10.0.0.1:3260"}},
		"one is a name":              {iscsi("10.0.0.1", "storage.example"), nil},
		"monitors":                   {corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"10.0.0.1"}}}, []string{"10.0.0.1:6789"}},
		"a driver's":                 {corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}, nil},
	} {
		if got := Servers(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: row.source}}); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}
