// Package behind says which network disk is behind a PersistentVolume, in the words of a machine's own volumes, and where its
// login is: iSCSI and RBD volumes of Kubernetes itself, and RBD volumes of ceph-csi.
//
// It reads nothing from the cluster and does not know whether a machine may open the disk; internal/decide/direct does.
package behind

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launch"
)

// What an administrator writes on a PersistentVolume or a StorageClass.
const (
	// AnnDirect "true" lets machines open volumes at their server, with the login in the volume's Secret. A volume's own word
	// counts before its class's.
	AnnDirect = "berth.dev/direct"
	// AnnMonitors are the addresses of Ceph's monitors, with commas between them: volumes of ceph-csi do not say them.
	AnnMonitors = "berth.dev/ceph-monitors"
)

// Disk is a network disk and the Secret with its login.
type Disk struct {
	launch.Direct
	Secret *corev1.SecretReference // nil: it needs none. Without a namespace it is in the claim's
}

// Says finds what an administrator says of a volume: on itself, or on its class.
func Says(annotation string, pv *corev1.PersistentVolume, class map[string]string) string {
	if said, ok := pv.Annotations[annotation]; ok {
		return said
	}
	return class[annotation]
}

// Of is the network disk behind a volume; nil without a reason if there is none. A reason says why QEMU cannot open the one
// there is.
func Of(pv *corev1.PersistentVolume, monitors string) (disk *Disk, why string) {
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.ISCSI != nil:
		return iscsi(s.ISCSI)
	case s.RBD != nil:
		return rbd(s.RBD)
	case s.CSI != nil && identity.CephCSI(s.CSI):
		return ceph(s.CSI, monitors)
	}
	return nil, ""
}

func iscsi(s *corev1.ISCSIPersistentVolumeSource) (*Disk, string) {
	d := &Disk{Direct: launch.Direct{ReadOnly: s.ReadOnly}}
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

// host reads an address with or without a port.
func host(text string) (kubevirt.NetworkHost, error) {
	name, port, err := net.SplitHostPort(text)
	if err != nil {
		return kubevirt.NetworkHost{Name: strings.Trim(text, "[]")}, nil //nolint:nilerr // it has no port
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return kubevirt.NetworkHost{}, fmt.Errorf("its portal %s has no port that is a number", text)
	}
	return kubevirt.NetworkHost{Name: name, Port: new(intstr.FromInt(n))}, nil
}

func rbd(s *corev1.RBDPersistentVolumeSource) (*Disk, string) {
	d := &Disk{Direct: launch.Direct{ReadOnly: s.ReadOnly}, Secret: s.SecretRef}
	d.RBD = &kubevirt.RBDSource{Monitors: s.CephMonitors, Pool: s.RBDPool, Image: s.RBDImage, User: s.RadosUser}
	if d.RBD.Pool == "" {
		d.RBD.Pool = identity.DefaultPool
	}
	switch {
	case d.Secret == nil:
		return nil, "its key is in a file of the nodes; name a Secret in its secretRef"
	case len(d.RBD.Monitors) == 0:
		return nil, "it names no monitors"
	}
	return plain(d)
}

func ceph(s *corev1.CSIPersistentVolumeSource, monitors string) (*Disk, string) {
	a := s.VolumeAttributes
	pool, namespace, image := identity.CephImage(s)
	d := &Disk{Direct: launch.Direct{ReadOnly: s.ReadOnly}, Secret: s.NodeStageSecretRef}
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

// plain is the disk if no part of its image's name can be taken for another part.
func plain(d *Disk) (*Disk, string) {
	for _, part := range []string{d.RBD.Pool, d.RBD.Namespace, d.RBD.Image, d.RBD.User} {
		if strings.ContainsAny(part, "/@:=,;\\ \t\n") {
			return nil, fmt.Sprintf("%q is no name that QEMU can be given", part)
		}
	}
	return d, ""
}

// Keys are those of a Secret's that the disk's login can have. Nothing else of the Secret concerns a machine.
func (d *Disk) Keys() []string {
	if d.ISCSI != nil {
		return launch.ISCSIKeys
	}
	return launch.CephKeys
}

// Login makes the disk take its login from a Secret of the machine's own namespace.
func (d *Disk) Login(secret string) {
	ref := &corev1.LocalObjectReference{Name: secret}
	if d.ISCSI != nil {
		d.ISCSI.SecretRef = ref
	} else {
		d.RBD.SecretRef = ref
	}
}
