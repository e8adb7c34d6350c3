//go:build host

package guest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
)

// mover is a machine with every kind of disk that moves: one that both nodes have, an empty one, one in a claim that one node has, and
// one that is made.
func mover() launch.Machine {
	q := func(s string) *kubevirt.Quantity { return new(resource.MustParse(s)) }
	m := launch.Machine{Namespace: "team", Name: "web", UID: "uid", Emulate: true}
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
	return m
}

func (w *world) boot(name, at string) *pod {
	w.t.Helper()
	disk := filepath.Join(w.shared, "disk.img")
	tool(w.t, "truncate", "-s", "64M", disk)
	tool(w.t, "chown", "107:107", disk)
	m := mover()
	m.Empty = map[string]int64{"local": 48 << 20}
	n := w.launch(name, at, m)
	n.expect("ready")
	return n
}

func (w *world) target(name, at, id string) *pod {
	m := mover()
	m.Incoming, m.Sent = id, []string{"local"}
	return w.launch(name, at, m)
}

// check has the guest compare the disks that it wrote, and returns what the one that was made for it holds.
func (n *pod) check(seed int) string {
	n.t.Helper()
	for _, disk := range []string{"vda", "vdb", "vdc"} {
		if got := n.tell(fmt.Sprintf("verify %s 1048576 4194304 %d", disk, seed)); got != "same" {
			n.t.Errorf("%s of %s: %s", disk, n.dir, got)
		}
	}
	return n.tell("sha256 vdd")
}

func (n *pod) fill(seed int) {
	n.t.Helper()
	for _, disk := range []string{"vda", "vdb", "vdc"} {
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
// cancelled or whose target dies stays where it is.
func TestMove(t *testing.T) {
	w := newWorld(t)
	source := w.boot("1", "a")
	source.fill(1)
	made := source.check(1)

	t.Log("a move that is cancelled")
	target := w.target("2", "b", "move-1")
	keys(t, "move-1", source, target)
	target.stage(launch.MoveWaits)
	// So slow that it cannot end before it is stopped: a quick machine sends this guest in less than a second.
	slow := launch.MoveLimits{Bandwidth: 16 << 20, PerGiB: 600, Still: 60, Converge: true}
	source.move(launch.Move{ID: "move-1", Disks: []string{"local"}, To: target.address, Pod: "2", Limits: slow})
	source.sends()
	source.move(launch.Move{ID: "move-1", Disks: []string{"local"}, To: target.address, Pod: "2", Limits: slow, Cancel: true})
	if said := source.stage(launch.MoveStopped); said.ID != "move-1" {
		t.Errorf("cancelled: %+v", said)
	}
	target.kill()
	if got := source.check(1); got != made {
		t.Errorf("after a cancelled move its cloud-init disk is another: %s, not %s", got, made)
	}

	t.Log("a target that dies on the way")
	target = w.target("3", "b", "move-2")
	keys(t, "move-2", source, target)
	target.stage(launch.MoveWaits)
	source.move(launch.Move{ID: "move-2", Disks: []string{"local"}, To: target.address, Pod: "3", Limits: slow})
	source.sends()
	target.kill()
	t.Logf("the source says: %s", source.stage(launch.MoveFailed).Detail)
	source.fill(2)
	if got := source.check(2); got != made {
		t.Errorf("after a failed move its cloud-init disk is another: %s, not %s", got, made)
	}

	for i, at := range []string{"b", "a"} {
		id, pod := fmt.Sprintf("move-%d", i+3), fmt.Sprint(i+4)
		target = w.target(pod, at, id)
		keys(t, id, source, target)
		target.stage(launch.MoveWaits)
		began := time.Now()
		source.move(launch.Move{ID: id, Disks: []string{"local"}, To: target.address, Pod: pod})
		r := source.report()
		if r.End != launch.Moved || r.To != pod || r.Pause == 0 {
			t.Fatalf("the source ended with %+v", r)
		}
		target.stage(launch.MoveRuns)
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
