package plug

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// netPlugs is a guest that network disks can be added to, whose servers all answer on a port of this host. The rules for
// loopback addresses do not hold in it; door has its own tests.
func netPlugs(t *testing.T, refuse string) (*plugs, func() []string) {
	t.Helper()
	qemu, said := fakeQEMU(t, refuse)
	r, err := remote.New(launcherapi.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	n := &remote.Added{Disks: r, Machine: launcherapi.Machine{Namespace: "ns", Name: "vm"}, Dir: t.TempDir(),
		Probe: func(context.Context, launcherapi.Machine, backing.Disk, *netdisk.Login) error { return nil }}
	return &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), has: map[string]*plug{}, asked: map[string]*releaseRequest{}, given: map[string]*releaseRequest{}, network: n}, said
}

func iscsiBacking() backing.Disk {
	return backing.Disk{Format: "raw", Remote: &backing.Remote{Address: netdisk.Address{Protocol: "iscsi", Name: "iqn.2017-01.io.kubevirt:sn.42/2", User: "alice",
		Initiator: "iqn.2026-01.dev.berth:ns.vm", Servers: []netdisk.Server{{Host: "10.0.0.5", Port: 3260}}}}}
}

// TestANetworkDiskComesAndGoes: QEMU is given the login for as long as it opens the disk, and certificates for as long as it
// has it.
func TestANetworkDiskComesAndGoes(t *testing.T) {
	p, said := netPlugs(t, "")
	if _, err := p.plugNetwork(kubevirt.Disk{Name: "data", Serial: "S"}, iscsiBacking(), &netdisk.Login{User: "alice", Value: []byte("hush")}); err != nil {
		t.Fatal(err)
	}
	b := backing.Disk{Format: "qcow2", ReadOnly: true, Shared: true, Remote: &backing.Remote{TLSDir: "/certs", Address: netdisk.Address{
		Protocol: "nbd", Name: "disk", TLS: true, TLSName: "nbd", Servers: []netdisk.Server{{Host: "10.0.0.6", Port: 10809}}}}}
	made, err := p.plugNetwork(kubevirt.Disk{Name: "more", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.BusSCSI}}}, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	made.source = "it"
	p.has["more"] = made
	p.gone(made.id)
	want := []string{
		"qmp_capabilities",
		`object-add {"data":"aHVzaA==","format":"base64","id":"hot1-login","qom-type":"secret"}`,
		`blockdev-add {"discard":"unmap","driver":"raw","file":{"discard":"unmap","driver":"iscsi","initiator-name":"iqn.2026-01.dev.berth:ns.vm","lun":2,` +
			`"password-secret":"hot1-login","portal":"10.0.0.5:3260","read-only":false,"target":"iqn.2017-01.io.kubevirt:sn.42","transport":"tcp","user":"alice"},` +
			`"node-name":"hot1","read-only":false}`,
		"query-pci",
		`device_add {"bus":"pci.2","drive":"hot1","driver":"virtio-blk-pci-non-transitional","id":"hot1","rerror":"stop","serial":"S","share-rw":false,"werror":"stop","write-cache":"on"}`,
		`object-del {"id":"hot1-login"}`,
		`object-add {"dir":"/certs","endpoint":"client","id":"hot2-tls","qom-type":"tls-creds-x509","verify-peer":true}`,
		`blockdev-add {"backing":null,"discard":"unmap","driver":"qcow2","file":{"discard":"unmap","driver":"nbd","export":"disk","read-only":true,"reconnect-delay":10,` +
			`"server":{"host":"10.0.0.6","port":"10809","type":"inet"},"tls-creds":"hot2-tls","tls-hostname":"nbd"},"node-name":"hot2","read-only":true}`,
		`device_add {"bus":"scsi0.0","drive":"hot2","driver":"scsi-hd","id":"hot2","rerror":"stop","share-rw":true,"werror":"stop","write-cache":"on"}`,
		`blockdev-del {"node-name":"hot2"}`,
		`object-del {"id":"hot2-tls"}`,
	}
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("QEMU was told (-want +got):\n%s", diff)
	}
	if len(p.has) != 0 {
		t.Errorf("it is still there: %v", p.has)
	}
}

func TestWhatWasBegunWithANetworkDiskIsUndone(t *testing.T) {
	for refuse, undone := range map[string][]string{
		"blockdev-add": {`object-del {"id":"hot1-login"}`},
		"device_add":   {`object-del {"id":"hot1-login"}`, `blockdev-del {"node-name":"hot1"}`},
	} {
		p, said := netPlugs(t, refuse)
		if _, err := p.plugNetwork(kubevirt.Disk{Name: "data"}, iscsiBacking(), &netdisk.Login{User: "alice", Value: []byte("hush")}); err == nil {
			t.Errorf("%s was refused and nothing is said", refuse)
		}
		got := said()
		got = got[max(0, len(got)-len(undone)):]
		if diff := cmp.Diff(undone, got); diff != "" {
			t.Errorf("after %s was refused (-want +got):\n%s", refuse, diff)
		}
	}
}

// TestNetworkHolder: a holder that was restarted is told that the guest has the disk if it is the same one; a login is not
// taken for a disk, nor a disk for a login; what was handed over is gone with the disk.
func TestNetworkHolder(t *testing.T) {
	p, said := netPlugs(t, "")
	added := launcherapi.Added{Volume: kubevirt.Volume{Name: "data", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{
		Host: kubevirt.NetworkHost{Name: "127.0.0.1", Port: new(intstr.FromInt(1))}, Portal: "iqn.2017-01.io.kubevirt:sn.42", SecretRef: &corev1.LocalObjectReference{Name: "chap"}}}}}}
	hand := func(a launcherapi.Added, login bool) rendezvous.Answer {
		t.Helper()
		f, err := os.CreateTemp(t.TempDir(), "login")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString(`{"credentials/node.session.auth.username": "YWxpY2U=", "credentials/node.session.auth.password": "aHVzaA=="}`)
		ends := pair(t)
		o := handover.Disk{Offer: rendezvous.Offer{Volume: "data", Login: login}, File: f, Holder: ends[0]}
		if a.Volume.Name == "" {
			p.attach(kubevirt.Disk{Name: "data"}, o)
		} else {
			p.attachNetwork(kubevirt.Disk{Name: "data"}, a, o)
		}
		answer, err := rendezvous.ReceiveAnswer(ends[1])
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if a := hand(added, true); a.Attached || !strings.Contains(a.Refused, "loopback") {
		t.Errorf("a server in the pod itself: %+v", a)
	}
	if a := hand(added, false); a.Attached || a.Refused != errNoLogin.Error() {
		t.Errorf("a disk instead of a login: %+v", a)
	}
	if a := hand(launcherapi.Added{}, true); a.Attached || a.Refused != errNoLogin.Error() {
		t.Errorf("a login instead of a disk: %+v", a)
	}
	if left, err := filepath.Glob(filepath.Join(p.network.Dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("logins are left: %v %v", left, err)
	}
	if got := said(); len(got) != 1 {
		t.Errorf("QEMU was troubled: %v", got)
	}
	p.has["data"] = &plug{id: "hot1", source: `{"volume":{"name":"data","iscsi":{"host":{"name":"127.0.0.1","port":1},"portal":"iqn.2017-01.io.kubevirt:sn.42","lun":0,"secretRef":{"name":"chap"}}}}`}
	if a := hand(added, true); !a.Attached {
		t.Errorf("the same disk: %+v", a)
	}
	other := added
	other.Volume.AccessMode = kubevirt.ReadShared
	if a := hand(other, true); a.Attached || a.Refused != errAnotherFile.Error() {
		t.Errorf("another disk: %+v", a)
	}
}

// pair is two ends of a connection.
func pair(t *testing.T) []*net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pair")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = one.Close(), two.Close() })
	return []*net.UnixConn{one, two}
}
