package guest

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/launch/rendezvous"
)

// fakeQEMU answers every command in order and writes it down, for the function it returns; refuse makes it refuse one.
func fakeQEMU(t *testing.T, refuse string) (*monitor, func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "monitor")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	var said []string
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(`{"QMP": {"version": {}}}` + "\n"))
		for d := json.NewDecoder(bufio.NewReader(c)); ; {
			var q struct {
				Execute   string          `json:"execute"`
				Arguments json.RawMessage `json:"arguments"`
			}
			if d.Decode(&q) != nil {
				return
			}
			mu.Lock()
			said = append(said, strings.TrimSpace(q.Execute+" "+string(q.Arguments)))
			mu.Unlock()
			answer := `{"return": {}}`
			switch q.Execute {
			case refuse:
				answer = `{"error": {"class": "GenericError", "desc": "no"}}`
			case "query-pci":
				answer = `{"return": [{"devices": [{"qdev_id": "pci.1", "pci_bridge": {"devices": [{}]}}, {"qdev_id": "pci.2", "pci_bridge": {}}]}]}`
			case "device_del":
				answer += `{"event": "DEVICE_DELETED", "data": {"device": "hot1", "path": "/machine/peripheral/hot1"}}`
			}
			_, _ = c.Write([]byte(answer + "\n"))
		}
	}()
	m, err := dialMonitor(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return m, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(said)
	}
}

func diskOffer(t *testing.T) offer {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "disk")
	if err != nil {
		t.Fatal(err)
	}
	return offer{Offer: rendezvous.Offer{Volume: "data", Device: true}, file: f}
}

func TestADiskComesAndGoes(t *testing.T) {
	qemu, said := fakeQEMU(t, "")
	p := &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), has: map[string]*plug{}}
	made, err := p.plug(kubevirt.Disk{Name: "data", Serial: "S"}, diskOffer(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"qmp_capabilities",
		`add-fd {"fdset-id":1}`,
		`blockdev-add {"discard":"unmap","driver":"raw","file":{"aio":"native","cache":{"direct":true,"no-flush":false},"discard":"unmap",` +
			`"driver":"host_device","filename":"/dev/fdset/1","read-only":false},"node-name":"hot1","read-only":false}`,
		"query-pci",
		`device_add {"bus":"pci.2","drive":"hot1","driver":"virtio-blk-pci-non-transitional","id":"hot1","rerror":"stop","serial":"S",` +
			`"share-rw":false,"werror":"stop","write-cache":"on"}`,
	}
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("QEMU was told (-want +got):\n%s", diff)
	}
	if _, err := qemu.run("device_del", map[string]string{"id": made.id}, nil); err != nil {
		t.Fatal(err)
	}
	if id := <-qemu.deleted; id != made.id {
		t.Errorf("%q was deleted, not %q", id, made.id)
	}
}

func TestWhatWasBegunIsUndone(t *testing.T) {
	for refuse, undone := range map[string][]string{
		"blockdev-add": {`remove-fd {"fdset-id":1}`},
		"device_add":   {`blockdev-del {"node-name":"hot1"}`, `remove-fd {"fdset-id":1}`},
	} {
		qemu, said := fakeQEMU(t, refuse)
		p := &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), has: map[string]*plug{}}
		if _, err := p.plug(kubevirt.Disk{Name: "data"}, diskOffer(t)); err == nil || !strings.Contains(err.Error(), "no") {
			t.Errorf("%s refused: %v", refuse, err)
		}
		got := said()
		got = got[len(got)-len(undone):]
		if diff := cmp.Diff(undone, got); diff != "" {
			t.Errorf("after %s was refused (-want +got):\n%s", refuse, diff)
		}
	}
}

// TestAnotherHolder: whoever replaces a holder is told that the guest has the disk only if it holds what QEMU has open.
func TestAnotherHolder(t *testing.T) {
	qemu, said := fakeQEMU(t, "")
	p := &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), has: map[string]*plug{}}
	hand := func(f *os.File) rendezvous.Answer {
		ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
		if err != nil {
			t.Fatal(err)
		}
		var conns []*net.UnixConn
		for _, fd := range ends {
			file := os.NewFile(uintptr(fd), "pair")
			c, err := net.FileConn(file)
			if err != nil {
				t.Fatal(err)
			}
			_ = file.Close()
			conns = append(conns, c.(*net.UnixConn))
		}
		again, err := os.Open(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		p.attach(kubevirt.Disk{Name: "data"}, offer{Offer: rendezvous.Offer{Volume: "data"}, file: again, holder: conns[0]})
		a, err := rendezvous.ReceiveAnswer(conns[1])
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first, other := diskOffer(t).file, diskOffer(t).file
	if a := hand(first); !a.Attached {
		t.Fatalf("the first: %+v", a)
	}
	told := len(said())
	if a := hand(first); !a.Attached {
		t.Errorf("the same file: %+v", a)
	}
	if a := hand(other); a.Attached || !strings.Contains(a.Refused, "another file") {
		t.Errorf("another file: %+v", a)
	}
	if a := hand(first); !a.Attached {
		t.Errorf("the same file after another: %+v", a)
	}
	if got := said(); len(got) != told {
		t.Errorf("QEMU was told more: %v", got[told:])
	}
}

// TestADiskTheGuestKeeps: the guest is asked again, and after a while it is said; both of a disk that was added and of one it
// was started with.
func TestADiskTheGuestKeeps(t *testing.T) {
	for refuse, words := range map[string]string{"": "", "device_del": ": QEMU: device_del: no"} {
		qemu, told := fakeQEMU(t, refuse)
		var l Launcher
		p := &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), asked: map[string]*plea{}, returns: &l.returns,
			has: map[string]*plug{"data": {id: "hot1", set: 1, holder: &net.UnixConn{}}}}
		orders, start := launch.Disks{Removed: []string{"root"}}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		for _, after := range []time.Duration{0, again / 2} {
			p.follow(orders, start.Add(after))
			if got := l.Returns(); len(got.Kept)+len(got.Given) > 0 {
				t.Errorf("said of a guest that was asked %s ago: %+v", after, got)
			}
		}
		p.follow(orders, start.Add(again))
		text := "the guest was asked for it at 12:00:00 and has not given it up; it is asked again every 10s" + words
		if diff := cmp.Diff(launch.Returns{Kept: map[string]string{"data": text, "root": text}, Has: []string{"data"}}, l.Returns()); diff != "" {
			t.Errorf("%q refused (-want +got):\n%s", refuse, diff)
		}
		asks := map[string]int{}
		for _, line := range told() {
			asks[line]++
		}
		if asks[`device_del {"id":"hot1"}`] != 2 || asks[`device_del {"id":"ua-root"}`] != 2 {
			t.Errorf("QEMU was told %v", asks)
		}
		p.gone("hot1")
		p.gone("ua-root")
		p.follow(orders, start.Add(3*again))
		if diff := cmp.Diff(launch.Returns{Kept: map[string]string{}, Given: []string{"root"}}, l.Returns()); diff != "" {
			t.Errorf("after both were given back (-want +got):\n%s", diff)
		}
	}
}

// TestADiskIsWantedAfterAll: what the machine was started with and has given back is given to it again, and can be asked for
// once more.
func TestADiskIsWantedAfterAll(t *testing.T) {
	qemu, told := fakeQEMU(t, "")
	var l Launcher
	p := &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), has: map[string]*plug{}, asked: map[string]*plea{}, returns: &l.returns,
		own: func(volume string) (kubevirt.Disk, offer, error) {
			return kubevirt.Disk{Name: volume}, diskOffer(t), nil
		}}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p.follow(launch.Disks{Removed: []string{"root"}}, now)
	p.gone("ua-root")
	p.follow(launch.Disks{}, now.Add(again))
	p.follow(launch.Disks{}, now.Add(2*again))
	p.follow(launch.Disks{Removed: []string{"root"}}, now.Add(3*again))
	var got []string
	for _, line := range told() {
		if verb, _, _ := strings.Cut(line, " "); strings.HasPrefix(verb, "device_") {
			got = append(got, line[:min(len(line), 26)])
		}
	}
	want := []string{`device_del {"id":"ua-root"}`[:26], `device_add {"bus":"pci.2","drive":"hot1"`[:26], `device_del {"id":"hot1"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("QEMU was told (-want +got):\n%s", diff)
	}
}

func TestDrivesThatCannotBeAdded(t *testing.T) {
	for word, d := range map[string]kubevirt.Disk{
		"lun":  {DiskDevice: kubevirt.DiskDevice{LUN: &kubevirt.LunTarget{}}},
		"CD":   {DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}}},
		"sata": {DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.BusSATA}}},
	} {
		if err := pluggable(d); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestProbedPortsAreForwarded(t *testing.T) {
	m := launch.Machine{}
	m.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Ports: []kubevirt.Port{{Port: 80}}}}
	m.Spec.ReadinessProbe = &kubevirt.Probe{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}
	m.Spec.LivenessProbe = &kubevirt.Probe{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(22)}}
	want := []string{"hostfwd_add hostua-default tcp::80-:80", "hostfwd_add hostua-default tcp::22-:22"}
	if diff := cmp.Diff(want, forwards(m)); diff != "" {
		t.Errorf("forwarded (-want +got):\n%s", diff)
	}
}

// answering is a QEMU that is asked about the queues of a disk.
func answering(t *testing.T, answer func(queue int) string) *monitor {
	t.Helper()
	path := filepath.Join(t.TempDir(), "monitor")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for d := json.NewDecoder(c); ; {
			var q struct {
				Execute   string `json:"execute"`
				Arguments struct {
					Queue int `json:"queue"`
				} `json:"arguments"`
			}
			if d.Decode(&q) != nil {
				return
			}
			text := `{}`
			if q.Execute == "x-query-virtio-queue-status" {
				text = answer(q.Arguments.Queue)
			}
			_, _ = c.Write([]byte(`{"return": ` + text + "}\n"))
		}
	}()
	m, err := dialMonitor(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
