//go:build host

package launcher

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/testing/hosttool"
)

// mover is a machine with every kind of disk that moves: one that both nodes have, an empty one, one in a claim that one node has, and
// one that is made; and disks of claims that one node has that were added to it while it ran.
func mover(added ...string) launcherapi.Machine {
	q := func(s string) *kubevirt.Quantity { return new(resource.MustParse(s)) }
	m := launcherapi.Machine{Namespace: "team", Name: "web", UID: "uid", Emulate: true}
	m.Spec.Domain.Memory = &kubevirt.Memory{Guest: q("192Mi")}
	m.Spec.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{KernelArgs: "console=ttyS0 quiet panic=1",
		Container: &kubevirt.KernelBootContainer{KernelPath: "/vmlinuz", InitrdPath: "/initrd"}}}
	add := func(name string, s kubevirt.VolumeSource) {
		m.Spec.Domain.Devices.Disks = append(m.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: name, Serial: name})
		m.Spec.Volumes = append(m.Spec.Volumes, kubevirt.Volume{Name: name, VolumeSource: s})
	}
	add("data", kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "data"}})
	add("scratch", kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: *q("64Mi")}})
	add("local", kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "local"}})
	add("init", kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "#!/bin/sh\necho hello\n"}})
	for _, name := range added {
		add(name, kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}})
	}
	return m
}

func (w *world) boot(name, at string) *pod {
	w.t.Helper()
	disk := filepath.Join(w.shared, "disk.img")
	hosttool.Run(w.t, "truncate", "-s", "64M", disk)
	hosttool.Run(w.t, "chown", "107:107", disk)
	m := mover()
	m.Empty = map[string]int64{"local": 48 << 20}
	n := w.launch(name, at, m)
	n.expect("ready")
	return n
}

func (w *world) target(name, at, id string, added ...string) *pod {
	m := mover(added...)
	m.Incoming, m.Sent = id, append([]string{"local"}, added...)
	return w.launch(name, at, m)
}

// add gives a guest that runs a disk of 32 MiB, as the holder of a claim does.
func (w *world) add(n *pod, volume string) {
	w.t.Helper()
	path := filepath.Join(w.dir, volume+".img")
	hosttool.Run(w.t, "truncate", "-s", "32M", path)
	meet := func(dir string) *net.UnixConn {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, rendezvous.Socket), Net: "unix"})
		if err != nil {
			w.t.Fatal(err)
		}
		return c
	}
	here, introduced := filepath.Join(w.dir, "holder"), make(chan *net.UnixConn, 1)
	if err := os.Mkdir(here, 0o755); err != nil {
		w.t.Fatal(err)
	}
	door, err := rendezvous.Serve(here, func(c *net.UnixConn) bool { introduced <- c; return true })
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = door.Close() })
	if err := rendezvous.Introduce(meet(here), meet(filepath.Join(n.dir, "run/meet"))); err != nil {
		w.t.Fatal(err)
	}
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		w.t.Fatal(err)
	}
	c := <-introduced
	if err := rendezvous.SendOffer(c, rendezvous.Offer{Volume: volume}, disk, reader); err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(launcherapi.Disks{Added: []kubevirt.Disk{{Name: volume, Serial: volume}}, Serial: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	n.order(launcherapi.DisksFile, text)
	if a, err := rendezvous.ReceiveAnswer(c); err != nil || !a.Attached {
		w.t.Fatalf("the holder of %s heard %+v, %v", volume, a, err)
	}
}

// little gives a launcher that is yet to be started a filesystem with less room for a volume than the guest's disk has data.
func (w *world) little(name, volume string) (undo func()) {
	w.t.Helper()
	dir, image := filepath.Join(w.dir, name, "run/volumes", volume), filepath.Join(w.dir, name+".fs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	hosttool.Run(w.t, "truncate", "-s", "3M", image)
	hosttool.Run(w.t, "mkfs.ext4", "-q", "-b", "1024", "-O", "^has_journal", image)
	hosttool.Run(w.t, "mount", "-o", "loop", image, dir)
	undo = sync.OnceFunc(func() { _ = exec.Command("umount", "-l", dir).Run() })
	w.t.Cleanup(undo)
	return undo
}

// check has the guest compare the disks that it wrote, and returns what the one that was made for it holds.
func (n *pod) check(seed int) string {
	n.t.Helper()
	for _, disk := range []string{"vda", "vdb", "vdc", "serial=more"} {
		if got := n.tell(fmt.Sprintf("verify %s 1048576 4194304 %d", disk, seed)); got != "same" {
			n.t.Errorf("%s of %s: %s", disk, n.dir, got)
		}
	}
	return n.tell("sha256 vdd")
}

func (n *pod) fill(seed int) {
	n.t.Helper()
	for _, disk := range []string{"vda", "vdb", "vdc", "serial=more"} {
		n.tell(fmt.Sprintf("write %s 1048576 4194304 %d", disk, seed))
	}
}

// boots is how often a guest was started here.
func (n *pod) boots() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(n.log.String(), "boot-id")
}

// TestMove: a guest goes to another launcher and back, with its disks and without being started again; one whose move is
// cancelled, whose target dies or whose target is full stays where it is.
func TestMove(t *testing.T) {
	w := newWorld(t)
	source := w.boot("1", "a")
	w.add(source, "more")
	source.fill(1)
	made := source.check(1)

	both, all := []string{"local", "more"}, []string{"data", "scratch", "local", "init", "more"}
	t.Log("a move that is cancelled")
	target := w.target("2", "b", "move-1", "more")
	keys(t, "move-1", source, target)
	target.stage(launcherapi.MoveWaits)
	// So slow that it cannot end before it is stopped: a quick machine sends this guest in less than a second.
	slow := launcherapi.MoveLimits{Bandwidth: 16 << 20, PerGiB: 600, Still: 60, Converge: true}
	source.move(launcherapi.Move{ID: "move-1", Disks: both, Volumes: all, To: target.address, Pod: "2", Limits: slow})
	source.sends()
	source.move(launcherapi.Move{ID: "move-1", Disks: both, Volumes: all, To: target.address, Pod: "2", Limits: slow, Cancel: true})
	if said := source.stage(launcherapi.MoveStopped); said.ID != "move-1" {
		t.Errorf("cancelled: %+v", said)
	}
	target.kill()
	if got := source.check(1); got != made {
		t.Errorf("after a cancelled move its cloud-init disk is another: %s, not %s", got, made)
	}

	t.Log("a target that dies on the way")
	target = w.target("3", "b", "move-2", "more")
	keys(t, "move-2", source, target)
	target.stage(launcherapi.MoveWaits)
	source.move(launcherapi.Move{ID: "move-2", Disks: both, Volumes: all, To: target.address, Pod: "3", Limits: slow})
	source.sends()
	target.kill()
	t.Logf("the source says: %s", source.stage(launcherapi.MoveFailed).Detail)
	source.fill(2)
	if got := source.check(2); got != made {
		t.Errorf("after a failed move its cloud-init disk is another: %s, not %s", got, made)
	}

	t.Log("a target that runs full")
	free := w.little("full", "local")
	target = w.target("full", "b", "move-full", "more")
	keys(t, "move-full", source, target)
	target.stage(launcherapi.MoveWaits)
	source.move(launcherapi.Move{ID: "move-full", Disks: both, Volumes: all, To: target.address, Pod: "full"})
	if said := source.of("move-full", launcherapi.MoveFailed).Detail; !strings.HasPrefix(said, "disk local cannot be written at the target, which has no room for it") {
		t.Errorf("the source says: %s", said)
	}
	target.kill()
	free()
	source.check(2)

	t.Log("a move to a target that was made before the disk was added")
	target = w.target("0", "b", "move-0")
	keys(t, "move-0", source, target)
	target.stage(launcherapi.MoveWaits)
	source.move(launcherapi.Move{ID: "move-0", Disks: []string{"local"}, Volumes: all[:4], To: target.address, Pod: "0"})
	if said := source.of("move-0", launcherapi.MoveFailed); !strings.Contains(said.Detail, "(more)") {
		t.Errorf("a target without the disk: %+v", said)
	}
	target.kill()

	for i, at := range []string{"b", "a"} {
		id, pod := fmt.Sprintf("move-%d", i+3), fmt.Sprint(i+4)
		target = w.target(pod, at, id, "more")
		keys(t, id, source, target)
		target.stage(launcherapi.MoveWaits)
		began := time.Now()
		source.move(launcherapi.Move{ID: id, Disks: both, Volumes: all, To: target.address, Pod: pod})
		r := source.report()
		if r.End != launcherapi.Moved || r.To != pod || r.Pause == 0 {
			t.Fatalf("the source ended with %+v", r)
		}
		target.stage(launcherapi.MoveRuns)
		t.Logf("moved to %s in %s; the guest stood still for %d ms", at, time.Since(began).Round(time.Millisecond), r.Pause)
		if got := target.check(2 + i); got != made {
			t.Errorf("its cloud-init disk is another: %s, not %s", got, made)
		}
		target.fill(3 + i)
		if n := target.boots(); n != 0 {
			t.Errorf("the guest was started again %d times", n)
		}
		source = target
	}
}
