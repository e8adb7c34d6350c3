package launcher

import (
	"strconv"

	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

// Remote is a disk that QEMU opens at a server.
type Remote struct {
	netdisk.Address
	Only    []string // the addresses that its servers may have; empty: any
	TLSDir  string   // where the certificates are
	Device  string   // what QEMU calls the device of a disk that was added; empty with others
	Granted bool     // an administrator gave it to the machine: their rules for servers that users name do not apply
}

// remote is the disk of a volume, with the user that its Secret names. A disk at a URL is not one: it comes by way of a
// socket of this pod.
func remote(m launcherapi.Machine, v kubevirt.Volume, user string) (*Remote, error) {
	at, err := netdisk.Open(v.NetworkSource, netdisk.Client{Namespace: m.Namespace, Name: m.Name, Portals: m.Direct[v.Name].Portals})
	if err != nil {
		return nil, err
	}
	at.User = user
	return &Remote{Address: at}, nil
}

// secretUsage is the name under which libvirt keeps a volume's secret.
func secretUsage(volume string) string { return "volume-" + volume }

// source is the disk as libvirt has it.
func (r *Remote) source(volume string) *libvirtxml.DomainDiskSource {
	protocol := netdisk.Of(r.Protocol)
	n := &libvirtxml.DomainDiskSourceNetwork{Protocol: r.Protocol, Name: r.Name}
	for _, s := range r.Servers {
		n.Hosts = append(n.Hosts, libvirtxml.DomainDiskSourceHost{Name: s.Host, Port: strconv.Itoa(s.Port)})
	}
	if r.Socket != "" {
		n.Hosts = []libvirtxml.DomainDiskSourceHost{{Transport: "unix", Socket: r.Socket}}
	}
	if r.User != "" {
		n.Auth = &libvirtxml.DomainDiskAuth{Username: r.User,
			Secret: &libvirtxml.DomainDiskSecret{Type: protocol.SecretType, Usage: secretUsage(volume)}}
	}
	if r.Initiator != "" {
		n.Initiator = &libvirtxml.DomainDiskSourceNetworkInitiator{IQN: &libvirtxml.DomainDiskSourceNetworkIQN{Name: r.Initiator}}
	}
	if r.Snapshot != "" {
		n.Snapshot = &libvirtxml.DomainDiskSourceNetworkSnapshot{Name: r.Snapshot}
	}
	if protocol.TLS {
		n.TLS, n.TLSHostname = yesNo(r.TLS), r.TLSName
	}
	if protocol.Reconnects {
		n.Reconnect = &libvirtxml.DomainDiskSourceNetworkReconnect{Delay: strconv.Itoa(netdisk.Reconnect)}
	}
	return &libvirtxml.DomainDiskSource{Network: n}
}

// number reads digits that this package has written itself.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
