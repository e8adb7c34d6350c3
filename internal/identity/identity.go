// Package identity says which disk is meant: two names of the same bytes have one identity, whether a machine gives the
// address itself or goes through a claim. There is a constructor for each kind of disk. What is written in one place and
// spelled otherwise in another (upper case, default ports, a portal's address) is made the same or left out there.
//
// Where two disks cannot be told apart for certain, they are the same: that costs a wait, the opposite costs the data.
// The package reads nothing from the cluster and does not know who has a disk; internal/decide/access does.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	s := pv.Spec.PersistentVolumeSource
	switch {
	case s.ISCSI != nil:
		return ISCSI(s.ISCSI.IQN, int(s.ISCSI.Lun))
	case s.RBD != nil:
		return RBD(s.RBD.RBDPool, "", s.RBD.RBDImage)
	case s.CSI != nil:
		return csi(s.CSI)
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

// csi is a driver's volume. Its handle is unique for the driver, so that two volumes that were made by hand for one
// handle are one disk.
func csi(s *corev1.CSIPersistentVolumeSource) Disk {
	if pool, namespace, image := CephImage(s); CephCSI(s) && pool != "" && image != "" {
		return RBD(pool, namespace, image)
	}
	return disk("csi", s.Driver, s.VolumeHandle)
}

// Servers are the addresses of the servers that a volume's disk is at, as the volume names them; nil if they are not all known: a name can
// lead anywhere.
func Servers(pv *corev1.PersistentVolume) []string {
	var written []string
	port := 0
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.ISCSI != nil:
		written, port = append([]string{s.ISCSI.TargetPortal}, s.ISCSI.Portals...), 3260
	case s.RBD != nil:
		written, port = s.RBD.CephMonitors, 6789
	}
	var out []string
	for _, w := range written {
		at, err := netip.ParseAddrPort(w)
		if err != nil {
			a, err := netip.ParseAddr(strings.Trim(w, "[]"))
			if err != nil {
				return nil
			}
			at = netip.AddrPortFrom(a, uint16(port))
		}
		out = append(out, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// CephCSI says that the volume is ceph-csi's, an image of RBD. Rook has its own namespace before the driver's name.
func CephCSI(s *corev1.CSIPersistentVolumeSource) bool {
	return strings.HasSuffix(s.Driver, "rbd.csi.ceph.com")
}

// CephImage is the image of a volume of ceph-csi. The image of a volume that was made by hand is its handle.
func CephImage(s *corev1.CSIPersistentVolumeSource) (pool, namespace, image string) {
	a := s.VolumeAttributes
	image = a["imageName"]
	if a["staticVolume"] == "true" {
		image = s.VolumeHandle
	}
	return a["pool"], a["radosNamespace"], image
}

// DefaultPool is the pool that clients of RBD take if none is named.
const DefaultPool = "rbd"

// ISCSI is a LUN of a target. Target names are unique in the world, so the portal does not count; they know no upper case.
func ISCSI(target string, lun int) Disk {
	return disk("iscsi", strings.ToLower(target), strconv.Itoa(lun))
}

// RBD is an image of Ceph. Monitors do not count: one cluster has many and their addresses change. An empty pool is the
// one that clients take by default. Its snapshots are the image: who reads one is in the way of who writes only if
// the caller says so.
func RBD(pool, namespace, image string) Disk {
	if pool == "" {
		pool = DefaultPool
	}
	return disk("rbd", pool, namespace, image)
}

// NBD is an export of a server. The host is as it was resolved where the caller can, else as it is written.
func NBD(host string, port int, export string) Disk {
	if port == 0 {
		port = 10809
	}
	return disk("nbd", hostPort(host, port), export)
}

// Gluster is a file in a volume of Gluster. Any of its servers leads to it, so none counts.
func Gluster(volume, file string) Disk {
	return disk("gluster", volume, path.Clean("/"+file))
}

// HTTP is a file on a web server. User, password, query and fragment do not count: they are credentials more often than
// they are names.
func HTTP(address string) (Disk, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Disk{}, fmt.Errorf("read the address of a disk: %w", err)
	}
	port := 80
	if u.Scheme == "https" {
		port = 443
	}
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return Disk{}, fmt.Errorf("read the address of a disk: port %q is not a number", p)
		}
	}
	return disk("http", hostPort(u.Hostname(), port), path.Clean("/"+u.Path)), nil
}

func hostPort(host string, port int) string {
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(host), "."), strconv.Itoa(port))
}
