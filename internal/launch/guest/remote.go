package guest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/reach"
)

// Remote is a disk that QEMU opens at a server.
type Remote struct {
	Protocol  string // iscsi, rbd, nbd, gluster
	Name      string // of the disk, in the protocol's own words
	Servers   []Server
	Only      []string // the addresses that its servers may have; empty: any
	Socket    string   // instead of servers: a socket of this pod that speaks the protocol
	User      string   // who logs in with the volume's secret; empty: nobody logs in
	Initiator string
	Snapshot  string
	TLS       bool
	TLSName   string // the name in the server's certificate
	TLSDir    string // where the certificates are
	Device    string // what QEMU calls the device of a disk that was added; empty with others
	Granted   bool   // an administrator gave it to the machine: their rules for servers that users name do not apply
}

// Server is where a disk is.
type Server struct {
	Host string
	Port int
}

// The protocols' own ports.
const (
	portISCSI   = 3260
	portRBD     = 6789
	portNBD     = 10809
	portGluster = 24007
)

// reconnect is for how many seconds a guest waits for an NBD server that has gone before its reads and writes fail, which
// pauses it. The other protocols' clients wait by themselves.
const reconnect = "10"

// remote is the disk of a volume, with the user that its Secret names. A disk at a URL is not one: it comes by way of a
// socket of this pod.
func remote(m launch.Machine, v kubevirt.Volume, user string) (*Remote, error) {
	switch s := v.VolumeSource; {
	case s.ISCSI != nil:
		r := &Remote{Protocol: "iscsi", Name: fmt.Sprintf("%s/%d", s.ISCSI.Portal, s.ISCSI.LUN), User: user,
			Servers: []Server{{s.ISCSI.Host.Name, s.ISCSI.Host.PortOr(portISCSI)}}, Initiator: s.ISCSI.Initiator}
		if r.Initiator == "" {
			r.Initiator = "iqn.2026-01.dev.berth:" + m.Namespace + "." + m.Name
		}
		for _, p := range m.Direct[v.Name].Portals {
			r.Servers = append(r.Servers, Server{p.Name, p.PortOr(portISCSI)})
		}
		return r, nil
	case s.RBD != nil:
		return rados(s.RBD, user)
	case s.NBD != nil:
		r := &Remote{Protocol: "nbd", Name: s.NBD.Export, Servers: []Server{{s.NBD.Host.Name, s.NBD.Host.PortOr(portNBD)}}}
		if t := s.NBD.TLS; t != nil {
			r.TLS, r.TLSName = true, t.Hostname
			if r.TLSName == "" {
				r.TLSName = s.NBD.Host.Name
			}
		}
		return r, nil
	case s.Gluster != nil:
		r := &Remote{Protocol: "gluster", Name: s.Gluster.Volume + "/" + strings.TrimLeft(s.Gluster.Path, "/")}
		for _, h := range s.Gluster.Hosts {
			r.Servers = append(r.Servers, Server{h.Name, h.PortOr(portGluster)})
		}
		return r, nil
	}
	return nil, errors.New("it is no network disk")
}

func rados(s *kubevirt.RBDSource, user string) (*Remote, error) {
	r := &Remote{Protocol: "rbd", Name: s.Pool + "/" + s.Image, Snapshot: s.Snapshot, User: user}
	if s.Namespace != "" {
		r.Name = s.Pool + "/" + s.Namespace + "/" + s.Image
	}
	for _, m := range s.Monitors {
		at := Server{Host: strings.Trim(m, "[]"), Port: portRBD}
		if host, port, err := net.SplitHostPort(m); err == nil {
			n, err := strconv.Atoi(port)
			if err != nil {
				return nil, fmt.Errorf("port of monitor %s: %w", m, err)
			}
			at = Server{Host: host, Port: n}
		}
		r.Servers = append(r.Servers, at)
	}
	return r, nil
}

// target is one of the disk's servers as rules see it.
func (r *Remote) target(s Server) reach.Target {
	t := reach.Target{Protocol: r.Protocol, Host: s.Host, Port: s.Port}
	if r.Protocol == "rbd" || r.Protocol == "gluster" {
		t.Pool, _, _ = strings.Cut(r.Name, "/")
	}
	return t
}

// secretUsage is the name under which libvirt keeps a volume's secret.
func secretUsage(volume string) string { return "volume-" + volume }

// secretType is what libvirt calls a secret of the protocol.
func (r *Remote) secretType() string {
	if r.Protocol == "rbd" {
		return "ceph"
	}
	return r.Protocol
}

// source is the disk as libvirt has it.
func (r *Remote) source(volume string) *libvirtxml.DomainDiskSource {
	n := &libvirtxml.DomainDiskSourceNetwork{Protocol: r.Protocol, Name: r.Name}
	for _, s := range r.Servers {
		n.Hosts = append(n.Hosts, libvirtxml.DomainDiskSourceHost{Name: s.Host, Port: strconv.Itoa(s.Port)})
	}
	if r.Socket != "" {
		n.Hosts = []libvirtxml.DomainDiskSourceHost{{Transport: "unix", Socket: r.Socket}}
	}
	if r.User != "" {
		n.Auth = &libvirtxml.DomainDiskAuth{Username: r.User,
			Secret: &libvirtxml.DomainDiskSecret{Type: r.secretType(), Usage: secretUsage(volume)}}
	}
	if r.Initiator != "" {
		n.Initiator = &libvirtxml.DomainDiskSourceNetworkInitiator{IQN: &libvirtxml.DomainDiskSourceNetworkIQN{Name: r.Initiator}}
	}
	if r.Snapshot != "" {
		n.Snapshot = &libvirtxml.DomainDiskSourceNetworkSnapshot{Name: r.Snapshot}
	}
	if r.Protocol == "nbd" {
		n.TLS, n.TLSHostname = yesNo(r.TLS), r.TLSName
		n.Reconnect = &libvirtxml.DomainDiskSourceNetworkReconnect{Delay: reconnect}
	}
	return &libvirtxml.DomainDiskSource{Network: n}
}

// node is the disk as QEMU's own programs and monitor have it. secret and tls are the names of objects that they know.
func (r *Remote) node(secret, tls string) map[string]any {
	n := map[string]any{"driver": r.Protocol}
	set := func(key string, value any) {
		if value != "" {
			n[key] = value
		}
	}
	inet := func(s Server) map[string]any {
		return map[string]any{"type": "inet", "host": s.Host, "port": strconv.Itoa(s.Port)}
	}
	set("user", r.User)
	switch r.Protocol {
	case "iscsi":
		target, lun, _ := strings.Cut(r.Name, "/")
		n["transport"], n["target"], n["lun"] = "tcp", target, number(lun)
		n["portal"] = net.JoinHostPort(r.Servers[0].Host, strconv.Itoa(r.Servers[0].Port))
		set("initiator-name", r.Initiator)
		set("password-secret", secret)
	case "rbd":
		parts := strings.Split(r.Name, "/")
		n["pool"], n["image"] = parts[0], parts[len(parts)-1]
		if len(parts) == 3 {
			n["namespace"] = parts[1]
		}
		set("snapshot", r.Snapshot)
		set("key-secret", secret)
		var servers []map[string]any
		for _, s := range r.Servers {
			servers = append(servers, map[string]any{"host": s.Host, "port": strconv.Itoa(s.Port)})
		}
		n["server"] = servers
	case "nbd":
		set("export", r.Name)
		set("tls-creds", tls)
		set("tls-hostname", r.TLSName)
		n["reconnect-delay"] = number(reconnect)
		if r.Socket != "" {
			n["server"] = map[string]any{"type": "unix", "path": r.Socket}
		} else {
			n["server"] = inet(r.Servers[0])
		}
	case "gluster":
		volume, file, _ := strings.Cut(r.Name, "/")
		n["volume"], n["path"] = volume, file
		var servers []map[string]any
		for _, s := range r.Servers {
			servers = append(servers, inet(s))
		}
		n["server"] = servers
	}
	return n
}

// number reads digits that this package has written itself.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
