package plug

import (
	std "cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/testing/qmptest"
)

// fakeQEMU answers every command in order and writes it down, for the function it returns; refuse makes it refuse one, and answers
// are other answers than its own.
func fakeQEMU(t *testing.T, refuse string, answers ...func(command string) string) (*qmp.Monitor, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var said []string
	sets := func() string { return `{"return": [` + strings.Join(nodesOfSets(t), ",") + `]}` }
	m := qmptest.Fake(t, func(command string, arguments json.RawMessage) (string, bool) {
		mu.Lock()
		said = append(said, strings.TrimSpace(command+" "+string(arguments)))
		mu.Unlock()
		answer := `{"return": {}}`
		switch command {
		case refuse:
			answer = `{"error": {"class": "GenericError", "desc": "no"}}`
		case "query-pci":
			answer = `{"return": [{"devices": [{"qdev_id": "pci.1", "pci_bridge": {"devices": [{}]}}, {"qdev_id": "pci.2", "pci_bridge": {}}]}]}`
		case "device_del":
			var about struct{ ID string }
			_ = json.Unmarshal(arguments, &about)
			answer += fmt.Sprintf(`{"event": "DEVICE_DELETED", "data": {"device": %q, "path": "/machine/peripheral/%s"}}`, about.ID, about.ID)
		case "query-fdsets":
			answer = `{"return": []}`
		case "add-fd":
			answer = `{"return": {"fd": 7}}`
		case "query-named-block-nodes":
			answer = sets()
		}
		for _, other := range answers {
			answer = std.Or(other(command), answer)
		}
		return answer, false
	})
	return m, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(said)
	}
}

func diskOffer(t *testing.T) handover.Disk {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "disk")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return handover.Disk{Offer: rendezvous.Offer{Volume: "data", Device: true}, File: f, Reader: reader}
}

// fakeDomain notes what libvirt is told, or refuses.
type fakeDomain struct {
	disks  []string
	refuse error
}

func (d *fakeDomain) attach(disk kubevirt.Disk, b backing.Disk) error {
	if d.refuse != nil {
		return d.refuse
	}
	_, err := os.Stat(b.Path) // libvirt looks too
	d.disks = append(d.disks, fmt.Sprintf("%s %s device=%t read-only=%t", disk.Name, filepath.Base(b.Path), b.Device, b.ReadOnly))
	return err
}

func (d *fakeDomain) medium(volume string, b *backing.Disk) error {
	if b == nil {
		d.disks = append(d.disks, volume+" ejected")
		return d.refuse
	}
	d.disks = append(d.disks, fmt.Sprintf("%s %s inserted", volume, filepath.Base(b.Path)))
	return d.refuse
}

// fakeSets is where the sets of files of a test have their names.
var fakeSets sync.Map

// nodesOfSets are block nodes for every set that has a name.
func nodesOfSets(t *testing.T) []string {
	dir, ok := fakeSets.Load(t)
	if !ok {
		return nil
	}
	names, _ := filepath.Glob(filepath.Join(dir.(string), "*"))
	var out []string
	for _, name := range names {
		out = append(out, fmt.Sprintf(`{"node-name": "libvirt-5-format", "drv": "raw", "file": %q}`, name),
			fmt.Sprintf(`{"node-name": "libvirt-5-storage", "drv": "host_device", "file": %q}`, name))
	}
	return out
}

// plugsTo is a guest that has no disks yet.
func plugsTo(t *testing.T, qemu *qmp.Monitor, d attacher) *plugs {
	t.Helper()
	dir := t.TempDir()
	fakeSets.Store(t, dir)
	return &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), has: map[string]*plug{}, asked: map[string]*releaseRequest{}, given: map[string]*releaseRequest{}, domain: d, sets: dir,
		still: &sync.Mutex{}, returns: &atomic.Pointer[launcherapi.Returns]{}}
}

func TestADiskComesAndGoes(t *testing.T) {
	qemu, said := fakeQEMU(t, "")
	domain := &fakeDomain{}
	p := plugsTo(t, qemu, domain)
	made, err := p.plug(kubevirt.Disk{Name: "data", Serial: "S"}, diskOffer(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"qmp_capabilities", `add-fd {"fdset-id":65537}`, `add-fd {"fdset-id":65537}`, `query-named-block-nodes {"flat":true}`,
		`blockdev-reopen {"options":[{"aio":"native","auto-read-only":false,"cache":{"direct":true,"no-flush":false},"discard":"unmap",` +
			`"driver":"host_device","filename":"` + p.setPath(65537) + `","node-name":"libvirt-5-storage","read-only":false}]}`,
		`remove-fd {"fd":7,"fdset-id":65537}`}
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("QEMU was told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"data 65537 device=true read-only=false"}, domain.disks); diff != "" {
		t.Errorf("libvirt was told (-want +got):\n%s", diff)
	}
	p.has["data"] = made
	if _, err := qemu.Run("device_del", map[string]string{"id": made.id}); err != nil {
		t.Fatal(err)
	}
	if id := <-qemu.Deleted; id != made.id {
		t.Errorf("%q was deleted, not %q", id, made.id)
	}
	p.gone(made.id)
	if left, _ := os.ReadDir(p.sets); len(p.has) > 0 || len(left) > 0 {
		t.Errorf("after it was given back there are %d disks and %d names of sets", len(p.has), len(left))
	}
}

// TestAnOpenDiskIsNotGivenBack: a holder is told to end when no process has its disk open any more, and not before.
func TestAnOpenDiskIsNotGivenBack(t *testing.T) {
	var open atomic.Bool
	open.Store(true)
	qemu, _ := fakeQEMU(t, "", func(command string) string {
		if command == "query-fdsets" && open.Load() {
			return `{"return": [{"fdset-id": 65537, "fds": []}]}`
		}
		return ""
	})
	p := plugsTo(t, qemu, &fakeDomain{})
	ends := pair(t)
	p.has["data"] = &plug{id: "ua-data", set: 65537, holder: ends[0]}
	p.gone("ua-data")
	if len(p.has) != 1 {
		t.Fatal("a disk that QEMU has open was given back")
	}
	open.Store(false)
	p.follow(launcherapi.Disks{}, time.Now())
	if a, err := rendezvous.ReceiveAnswer(ends[1]); err != nil || !a.Released || len(p.has) != 0 {
		t.Errorf("after it was closed the holder heard %+v, %v; disks: %v", a, err, p.has)
	}
}

func TestWhatWasBegunIsUndone(t *testing.T) {
	for refuse, domain := range map[string]*fakeDomain{"add-fd": {}, "": {refuse: errors.New("libvirt says no")}} {
		qemu, said := fakeQEMU(t, refuse)
		p := plugsTo(t, qemu, domain)
		if _, err := p.plug(kubevirt.Disk{Name: "data"}, diskOffer(t)); err == nil || !strings.Contains(err.Error(), "no") {
			t.Errorf("%q refused: %v", refuse, err)
		}
		got := said()
		if last := got[len(got)-1]; last != `remove-fd {"fdset-id":65537}` {
			t.Errorf("after %q was refused QEMU was told %s", refuse, last)
		}
		if left, _ := os.ReadDir(p.sets); len(left) > 0 {
			t.Errorf("after %q was refused %d names of sets are left", refuse, len(left))
		}
	}
}

// TestADiskForWritingAlone: libvirt opens a disk for reading before it is written to.
func TestADiskForWritingAlone(t *testing.T) {
	qemu, _ := fakeQEMU(t, "")
	o := diskOffer(t)
	o.Reader = nil
	if _, err := plugsTo(t, qemu, &fakeDomain{}).plug(kubevirt.Disk{Name: "data"}, o); !errors.Is(err, errOneFile) {
		t.Errorf("plugged: %v", err)
	}
}

// TestAnotherHolder: a new holder is told that the guest has the disk only if it holds what QEMU has open.
func TestAnotherHolder(t *testing.T) {
	qemu, said := fakeQEMU(t, "")
	p := plugsTo(t, qemu, &fakeDomain{})
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
		reader, err := os.Open(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		p.attach(kubevirt.Disk{Name: "data"}, handover.Disk{Offer: rendezvous.Offer{Volume: "data"}, File: again, Reader: reader, Holder: conns[0]})
		a, err := rendezvous.ReceiveAnswer(conns[1])
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first, other := diskOffer(t).File, diskOffer(t).File
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
		var said atomic.Pointer[launcherapi.Returns]
		p := &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), asked: map[string]*releaseRequest{}, given: map[string]*releaseRequest{}, returns: &said,
			has: map[string]*plug{"data": {id: "ua-data", set: 65537, holder: &net.UnixConn{}}}, sets: t.TempDir()}
		orders, start := launcherapi.Disks{Removed: []string{"root"}}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		for _, after := range []time.Duration{0, again / 2} {
			p.follow(orders, start.Add(after))
			if got := said.Load(); len(got.Kept)+len(got.Given) > 0 {
				t.Errorf("said of a guest that was asked %s ago: %+v", after, got)
			}
		}
		p.follow(orders, start.Add(again))
		text := "the guest was asked for it at 12:00:00 and has not given it up; it is asked again every 10s" + words
		if diff := cmp.Diff(launcherapi.Returns{Kept: map[string]string{"data": text, "root": text}, Has: []string{"data"}}, *said.Load()); diff != "" {
			t.Errorf("%q refused (-want +got):\n%s", refuse, diff)
		}
		asks := map[string]int{}
		for _, line := range told() {
			asks[line]++
		}
		if asks[`device_del {"id":"ua-data"}`] != 2 || asks[`device_del {"id":"ua-root"}`] != 2 {
			t.Errorf("QEMU was told %v", asks)
		}
		p.gone("ua-data")
		p.gone("ua-root")
		p.follow(orders, start.Add(3*again))
		if diff := cmp.Diff(launcherapi.Returns{Kept: map[string]string{}, Given: []string{"root"}}, *said.Load()); diff != "" {
			t.Errorf("after both were given back (-want +got):\n%s", diff)
		}
	}
}

// TestADiskIsWantedAfterAll: what the machine was started with and has given back is given to it again, and can be asked for
// once more.
func TestADiskIsWantedAfterAll(t *testing.T) {
	qemu, told := fakeQEMU(t, "")
	var said atomic.Pointer[launcherapi.Returns]
	domain := &fakeDomain{}
	p := plugsTo(t, qemu, domain)
	p.returns = &said
	p.own = func(volume string) (kubevirt.Disk, handover.Disk, error) {
		return kubevirt.Disk{Name: volume}, diskOffer(t), nil
	}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p.follow(launcherapi.Disks{Removed: []string{"root"}}, now)
	p.gone("ua-root")
	p.follow(launcherapi.Disks{}, now.Add(again))
	p.follow(launcherapi.Disks{}, now.Add(2*again))
	p.follow(launcherapi.Disks{Removed: []string{"root"}}, now.Add(3*again))
	var got []string
	for _, line := range told() {
		if verb, _, _ := strings.Cut(line, " "); strings.HasPrefix(verb, "device_") {
			got = append(got, line)
		}
	}
	want := []string{`device_del {"id":"ua-root"}`, `device_del {"id":"ua-root"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("QEMU was told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"root 65537 device=true read-only=false"}, domain.disks); diff != "" {
		t.Errorf("libvirt was told (-want +got):\n%s", diff)
	}
}

func TestDrivesThatCannotBeAdded(t *testing.T) {
	for word, d := range map[string]kubevirt.Disk{
		"lun":  {DiskDevice: kubevirt.DiskDevice{LUN: &kubevirt.LunTarget{}}},
		"CD":   {DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}}},
		"sata": {DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.BusSATA}}},
	} {
		if err := launcherapi.Pluggable(d); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestProbedPortsAreForwarded(t *testing.T) {
	m := launcherapi.Machine{}
	m.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Ports: []kubevirt.Port{{Port: 80}}}}
	m.Spec.ReadinessProbe = &kubevirt.Probe{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}
	m.Spec.LivenessProbe = &kubevirt.Probe{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(22)}}
	want := []string{"hostfwd_add hostua-default tcp::80-:80", "hostfwd_add hostua-default tcp::22-:22"}
	if diff := cmp.Diff(want, domain.Forwards(m)); diff != "" {
		t.Errorf("forwarded (-want +got):\n%s", diff)
	}
}
