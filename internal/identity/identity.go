// Package identity identifies disks: two names of the same bytes have one identity, whether a machine gives the address itself or
// goes through a claim. What is spelled differently in two places (upper case, default ports) is made the same or left out:
// internal/netdisk does that for network disks.
//
// Where two disks cannot be told apart for certain, they are the same: that costs a wait, the opposite costs the data.
// The package reads nothing from the cluster and does not know who has a disk; internal/decide/access does.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/netdisk"
)

// Disk is the identity of a disk. Two are the same disk if they are equal.
type Disk struct {
	text string
}

// String is the identity in words, without credentials.
func (d Disk) String() string { return d.text }

// Name is the identity as the name of an API object.
func (d Disk) Name() string {
	sum := sha256.Sum256([]byte(d.text))
	return hex.EncodeToString(sum[:16]) // 128 bits: nobody can make two disks meet under one name
}

// disk joins parts so that no two lists of parts give the same text.
func disk(kind string, parts ...string) Disk {
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return Disk{text: kind + ":" + strings.Join(parts, "/")}
}

// Volume is the disk behind a claim's PersistentVolume. A volume that only leads to a network disk is that disk.
func Volume(pv *corev1.PersistentVolume) Disk {
	if protocol, parts := netdisk.KeyOf(pv); protocol != "" {
		return disk(protocol, parts...)
	}
	s := pv.Spec.PersistentVolumeSource
	switch {
	case s.CSI != nil: // a handle is unique for the driver, so two volumes that were made by hand for one handle are one disk
		return disk("csi", s.CSI.Driver, s.CSI.VolumeHandle)
	case s.FC != nil:
		return fibre(s.FC)
	case s.NFS != nil:
		return disk("nfs", strings.TrimSuffix(strings.ToLower(s.NFS.Server), "."), path.Clean("/"+s.NFS.Path))
	case s.Local != nil:
		return disk("local", nodes(pv), path.Clean(s.Local.Path))
	case s.HostPath != nil:
		return disk("local", nodes(pv), path.Clean(s.HostPath.Path))
	}
	return byUID(pv)
}

// byUID is the identity of a volume that is not known to lead to the same disk as any other.
func byUID(pv *corev1.PersistentVolume) Disk { return disk("volume", string(pv.UID)) }

// Former is the identity that an earlier version of Berth gave the volume, if it was another: records of pods that run since then are named
// by it.
// Every record has its new name after one release with this function.
func Former(pv *corev1.PersistentVolume) (Disk, bool) {
	return byUID(pv), byUID(pv) != Volume(pv) && HasFormer(Volume(pv))
}

// HasFormer says whether volumes of this kind of disk had another identity in an earlier version.
func HasFormer(d Disk) bool {
	kind, _, _ := strings.Cut(d.text, ":")
	return kind == "fc" || kind == "nfs" || kind == "local"
}

// fibre is a LUN on Fibre Channel, by the world wide identifier of the disk itself if that is known, else by the ports that lead to it. Order
// and spelling do not count.
func fibre(s *corev1.FCVolumeSource) Disk {
	clean := func(names []string) string {
		out := make([]string, 0, len(names))
		for _, n := range names {
			out = append(out, strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(n), "0x"), ":", ""))
		}
		slices.Sort(out)
		return strings.Join(slices.Compact(out), ",")
	}
	if len(s.WWIDs) > 0 {
		return disk("fc", "wwid", clean(s.WWIDs))
	}
	lun := ""
	if s.Lun != nil {
		lun = strconv.Itoa(int(*s.Lun))
	}
	return disk("fc", "wwn", clean(s.TargetWWNs), lun)
}

// nodes are the nodes that a volume's affinity names, in one order: the same path on two nodes is two disks.
func nodes(pv *corev1.PersistentVolume) string {
	var out []string
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
		for _, term := range a.Required.NodeSelectorTerms {
			for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
				out = append(out, r.Values...)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// Network is the disk of a volume at a server. servers are the addresses of the servers that the disk was opened at; none if they
// are not known.
func Network(s kubevirt.NetworkSource, servers ...string) (Disk, error) {
	protocol, parts, err := netdisk.Key(s, servers)
	if err != nil {
		return Disk{}, err
	}
	return disk(protocol, parts...), nil
}
