package netdisk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// What an administrator writes on a PersistentVolume or a StorageClass.
const (
	// AnnDirect "true" lets machines open volumes at their server, with the login in the volume's Secret. The volume's annotation counts before
	// that of its class.
	AnnDirect = "berth.dev/direct"
	// AnnMonitors are the addresses of Ceph's monitors, with commas between them: volumes of ceph-csi do not say them.
	AnnMonitors = "berth.dev/ceph-monitors"
)

// Annotation returns what an administrator says of a volume: on itself, or on its class.
func Annotation(name string, pv *corev1.PersistentVolume, class map[string]string) string {
	if said, ok := pv.Annotations[name]; ok {
		return said
	}
	return class[name]
}

// Direct is the network disk behind a claim, as the claim's PersistentVolume describes it: what QEMU opens instead of a
// mount. Its administrator has allowed it, so their rules for the servers that users name do not apply.
type Direct struct {
	kubevirt.NetworkSource
	// Portals are more addresses of the same iSCSI target.
	Portals []kubevirt.NetworkHost `json:"portals,omitempty"`
	// ReadOnly: the PersistentVolume says so.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Volume is a volume of the machine as the launcher opens it: one that is not mounted is a network disk.
func (d Direct) Volume(v kubevirt.Volume) kubevirt.Volume {
	claim := v.PersistentVolumeClaim
	v.VolumeSource = kubevirt.VolumeSource{NetworkSource: d.NetworkSource}
	if d.ReadOnly || claim != nil && claim.ReadOnly {
		v.AccessMode = kubevirt.ReadShared
	}
	return v
}

// Behind is the network disk behind a PersistentVolume and the Secret with its login.
type Behind struct {
	Direct
	Secret *corev1.SecretReference // nil: it needs none. Without a namespace it is in the claim's
}

// Keys returns the keys of a Secret that the disk's login may have. Other keys of the Secret are ignored.
func (b *Behind) Keys() []string { return of(&b.NetworkSource).Keys }

// OfVolume returns the network disk behind a volume; nil without a reason if there is none. A reason says why QEMU cannot open the one
// there is.
func OfVolume(pv *corev1.PersistentVolume, monitors string) (disk *Behind, why string) {
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.ISCSI != nil:
		return iscsiVolume(s.ISCSI)
	case s.RBD != nil:
		return rbdVolume(s.RBD)
	case s.CSI != nil && cephCSI(s.CSI):
		return cephVolume(s.CSI, monitors)
	}
	return nil, ""
}

// KeyOf identifies the network disk behind a volume, also one that QEMU cannot open; "" if there is none.
func KeyOf(pv *corev1.PersistentVolume) (protocol string, parts []string) {
	var n kubevirt.NetworkSource
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.ISCSI != nil:
		n.ISCSI = &kubevirt.ISCSISource{Portal: s.ISCSI.IQN, LUN: s.ISCSI.Lun}
	case s.RBD != nil:
		n.RBD = &kubevirt.RBDSource{Pool: s.RBD.RBDPool, Image: s.RBD.RBDImage}
	case s.CSI != nil && cephCSI(s.CSI):
		if pool, namespace, image := cephImage(s.CSI); pool != "" && image != "" {
			n.RBD = &kubevirt.RBDSource{Pool: pool, Namespace: namespace, Image: image}
		}
	}
	protocol, parts, _ = Key(n, nil) // none of these can fail
	return protocol, parts
}

// Servers returns the addresses of the servers that a volume's disk is at, as the volume names them; nil if they are not all known: a name can
// lead anywhere.
func Servers(pv *corev1.PersistentVolume) []string {
	var written []string
	protocol := ""
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.ISCSI != nil:
		written, protocol = append([]string{s.ISCSI.TargetPortal}, s.ISCSI.Portals...), "iscsi"
	case s.RBD != nil:
		written, protocol = s.RBD.CephMonitors, "rbd"
	}
	var out []string
	for _, w := range written {
		at, err := parseServer(w, Of(protocol).Port)
		if err != nil {
			return nil
		}
		a, err := netip.ParseAddr(at.Host)
		if err != nil {
			return nil
		}
		out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(at.Port)).String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func iscsiVolume(s *corev1.ISCSIPersistentVolumeSource) (*Behind, string) {
	d := &Behind{Direct: Direct{ReadOnly: s.ReadOnly}}
	d.ISCSI = &kubevirt.ISCSISource{Portal: s.IQN, LUN: s.Lun, Initiator: ptr.Deref(s.InitiatorName, "")}
	for i, text := range append([]string{s.TargetPortal}, s.Portals...) {
		h, err := host(text)
		switch {
		case err != nil:
			return nil, err.Error()
		case i == 0:
			d.ISCSI.Host = h
		case text != s.TargetPortal:
			d.Portals = append(d.Portals, h)
		}
	}
	switch {
	case s.ISCSIInterface != "" && s.ISCSIInterface != "default" && s.ISCSIInterface != "tcp":
		return nil, fmt.Sprintf("it is reached by interface %s of the nodes, which QEMU does not have", s.ISCSIInterface)
	case s.SessionCHAPAuth && s.SecretRef == nil:
		return nil, "it asks for CHAP and names no Secret"
	case s.SessionCHAPAuth:
		d.Secret = s.SecretRef
	}
	return d, ""
}

// host parses an address with or without a port.
func host(text string) (kubevirt.NetworkHost, error) {
	at, err := parseServer(text, 0)
	if err != nil {
		return kubevirt.NetworkHost{}, fmt.Errorf("its portal %w", err)
	}
	h := kubevirt.NetworkHost{Name: at.Host}
	if at.Port != 0 {
		h.Port = new(intstr.FromInt(at.Port))
	}
	return h, nil
}

func rbdVolume(s *corev1.RBDPersistentVolumeSource) (*Behind, string) {
	d := &Behind{Direct: Direct{ReadOnly: s.ReadOnly}, Secret: s.SecretRef}
	d.RBD = &kubevirt.RBDSource{Monitors: s.CephMonitors, Pool: s.RBDPool, Image: s.RBDImage, User: s.RadosUser}
	if d.RBD.Pool == "" {
		d.RBD.Pool = DefaultPool
	}
	switch {
	case d.Secret == nil:
		return nil, "its key is in a file of the nodes; name a Secret in its secretRef"
	case len(d.RBD.Monitors) == 0:
		return nil, "it names no monitors"
	}
	return plain(d)
}

// cephCSI reports whether the volume is ceph-csi's, an image of RBD. Rook has its own namespace before the driver's name.
func cephCSI(s *corev1.CSIPersistentVolumeSource) bool {
	return strings.HasSuffix(s.Driver, "rbd.csi.ceph.com")
}

// cephImage returns the image of a volume of ceph-csi. The image of a volume that was made manually is its handle.
func cephImage(s *corev1.CSIPersistentVolumeSource) (pool, namespace, image string) {
	a := s.VolumeAttributes
	image = a["imageName"]
	if a["staticVolume"] == "true" {
		image = s.VolumeHandle
	}
	return a["pool"], a["radosNamespace"], image
}

func cephVolume(s *corev1.CSIPersistentVolumeSource, monitors string) (*Behind, string) {
	a := s.VolumeAttributes
	pool, namespace, image := cephImage(s)
	d := &Behind{Direct: Direct{ReadOnly: s.ReadOnly}, Secret: s.NodeStageSecretRef}
	d.RBD = &kubevirt.RBDSource{Pool: pool, Namespace: namespace, Image: image}
	if monitors == "" {
		monitors = a["monitors"]
	}
	for m := range strings.SplitSeq(monitors, ",") {
		if m = strings.TrimSpace(m); m != "" {
			d.RBD.Monitors = append(d.RBD.Monitors, m)
		}
	}
	switch {
	case pool == "" || image == "":
		return nil, "its attributes do not name a pool and an image"
	case a["encrypted"] == "true":
		return nil, "it is encrypted by its driver, which has the key"
	case d.Secret == nil:
		return nil, "it has no nodeStageSecretRef"
	case len(d.RBD.Monitors) == 0:
		return nil, fmt.Sprintf("it does not say where its monitors are: annotate it or its StorageClass with %s", AnnMonitors)
	}
	return plain(d)
}

// plain returns the disk if no part of its image's name can be mistaken for another part.
func plain(d *Behind) (*Behind, string) {
	for _, part := range []string{d.RBD.Pool, d.RBD.Namespace, d.RBD.Image, d.RBD.User} {
		if strings.ContainsAny(part, "/@:=,;\\ \t\n") {
			return nil, fmt.Sprintf("%q is no name that QEMU can be given", part)
		}
	}
	return d, ""
}
