//go:build host

package plug

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/keep"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/testing/hosttool"
	"github.com/berth-vm/berth/internal/testing/qmptest"
)

// kept is a real QEMU with a copy on write of 64 MiB over a master that is 7s in its first quarter, and a client that writes to it.
type kept struct {
	t     *testing.T
	dir   string
	qemu  *qmp.Monitor
	plugs *plugs
	said  atomic.Pointer[launcherapi.Returns]
	held  atomic.Int32
}

const keptSize = 64 << 20

func newKept(t *testing.T, filter bool) *kept {
	t.Helper()
	dir := t.TempDir()
	k := &kept{t: t, dir: dir}
	master := bytes.Repeat([]byte{7}, keptSize/4)
	if err := os.WriteFile(filepath.Join(dir, "master"), append(master, make([]byte, keptSize-len(master))...), 0o400); err != nil {
		t.Fatal(err)
	}
	overlay, socket := filepath.Join(dir, "copy"), filepath.Join(dir, "monitor")
	hosttool.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", filepath.Join(dir, "master"), "-F", "raw", overlay)
	node := `{"driver":"qcow2","node-name":"format","discard":"unmap","file":{"driver":"file","filename":"` + overlay + `"}}`
	args := []string{"-S", "-nodefaults", "-display", "none", "-machine", "q35", "-qmp", "unix:" + socket + ",server=on,wait=off", "-blockdev", node}
	drive := "format"
	if filter { // as libvirt has QEMU open a copy on read
		args, drive = append(args, "-blockdev", `{"driver":"copy-on-read","node-name":"filter","file":"format"}`), "filter"
	}
	cmd := exec.Command("qemu-system-x86_64", append(args, "-device", "virtio-blk-pci,id=ua-root,werror=stop,drive="+drive)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	k.qemu = qmptest.Await(t, socket)
	quiet := func(do func()) bool { k.held.Add(1); do(); return true }
	k.plugs = &plugs{qemu: k.qemu, log: slog.New(slog.DiscardHandler), offer: map[string]handover.Disk{}, has: map[string]*plug{}, asked: map[string]*releaseRequest{}, given: map[string]*releaseRequest{},
		returns: &k.said, keeps: keep.New(k.qemu, slog.New(slog.DiscardHandler), quiet)}
	return k
}

// guest writes to the disk as its guest would.
func (k *kept) guest(command string) {
	k.t.Helper()
	answer, err := k.qemu.Run("human-monitor-command", map[string]string{"command-line": `qemu-io -d /machine/peripheral/ua-root/virtio-backend "` + command + `"`})
	if err != nil || strings.Contains(string(answer), "rror") || strings.Contains(string(answer), "failed") {
		k.t.Fatalf("%s: %v: %s", command, err, answer)
	}
}

// offer hands a claim over, and returns the holder's end.
func (k *kept) offer(f *os.File, device bool) *net.UnixConn {
	k.t.Helper()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	var conns []*net.UnixConn
	for _, fd := range ends {
		file := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(file)
		if err != nil {
			k.t.Fatal(err)
		}
		_ = file.Close()
		conns = append(conns, c.(*net.UnixConn))
	}
	again, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	k.plugs.offer["keep.root"] = handover.Disk{Offer: rendezvous.Offer{Volume: "keep.root", Device: device}, File: again, Holder: conns[0]}
	return conns[1]
}

func (k *kept) claim(name string) *os.File {
	k.t.Helper()
	f, err := os.Create(filepath.Join(k.dir, name))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = f.Close() })
	return f
}

// loopOf is a device with a file's bytes.
func loopOf(t *testing.T, file string) string {
	t.Helper()
	loop := strings.TrimSpace(hosttool.Run(t, "losetup", "--find", "--show", file))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() }) // gone already with the mount
	return loop
}

func order(claim string) launcherapi.Disks {
	return launcherapi.Disks{Keeps: map[string]launcherapi.KeepOrder{"keep.root": {Volume: "root", Claim: claim}}}
}

// until follows the orders until the word of the claim is such.
func (k *kept) until(want launcherapi.Disks, claim string, such func(launcherapi.Keep) bool) launcherapi.Keep {
	k.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < time.Minute; <-tick.C {
		k.plugs.follow(want, time.Now())
		if w, ok := k.said.Load().Keeps[claim]; ok && such(w) {
			return w
		}
	}
	k.t.Fatalf("it says %+v", k.said.Load())
	return launcherapi.Keep{}
}

// part is a part of a claim.
func (k *kept) part(f *os.File, offset, length int) []byte {
	k.t.Helper()
	b := make([]byte, length)
	if _, err := f.ReadAt(b, int64(offset)); err != nil {
		k.t.Fatal(err)
	}
	return b
}

// TestKeep: a claim gets what the guest's disk is at one moment, while the guest writes: what the master has, what was written
// before, and of what is written meanwhile neither more nor less than was written by then. Whatever was in the claim before is gone.
func TestKeep(t *testing.T) {
	for _, filter := range []bool{false, true} {
		for _, device := range []bool{false, true} {
			t.Run(fmt.Sprintf("filter-%v-device-%v", filter, device), func(t *testing.T) {
				k := newKept(t, filter)
				k.guest("write -P 9 1M 2M")
				claim := k.claim("claim")
				if _, err := claim.Write(bytes.Repeat([]byte{5}, keptSize+4<<20)); err != nil { // of an earlier use
					t.Fatal(err)
				}
				if device {
					loop := loopOf(t, claim.Name())
					var err error
					if claim, err = os.OpenFile(loop, os.O_RDWR, 0); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = claim.Close() })
				}
				k.offer(claim, device)
				count := 0
				write := func() { // first one block, then the other
					count++
					k.guest(fmt.Sprintf("write -P %d 40M 4k", count%200+10))
					k.guest(fmt.Sprintf("write -P %d 63M 4k", count%200+10))
				}
				write()
				w := k.until(order("u1"), "u1", func(w launcherapi.Keep) bool { write(); return w.Over() })
				if !w.Written || w.Failed != "" || !w.Quiet || k.held.Load() != 1 || w.Done != w.Total || w.Total < keptSize {
					t.Fatalf("it says %+v, held %d", w, k.held.Load())
				}
				for range 5 {
					write()
				}
				first, second := k.part(claim, 40<<20, 1)[0], k.part(claim, 63<<20, 1)[0]
				if first != second || int(first) == count%200+10 || first < 10 {
					t.Errorf("the blocks have %d and %d after %d rounds: not one moment", first, second, count)
				}
				for _, area := range []struct{ offset, length, value int }{
					{0, 1 << 20, 7}, {1 << 20, 2 << 20, 9}, {3 << 20, 13 << 20, 7}, {16 << 20, 24 << 20, 0}, {41 << 20, 22 << 20, 0},
				} {
					if !bytes.Equal(k.part(claim, area.offset, area.length), bytes.Repeat([]byte{byte(area.value)}, area.length)) {
						t.Errorf("%d bytes at %d are not %d", area.length, area.offset, area.value)
					}
				}
				if !device && (backing.Stored(claim.Name()) > 24<<20 || backing.Stored(claim.Name()) < 16<<20) {
					t.Errorf("it takes %d bytes", backing.Stored(claim.Name()))
				}
			})
		}
	}
}

// answers are those that a holder has got so far.
func answers(c *net.UnixConn) (got rendezvous.Answer, gone bool) {
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	for {
		a, err := rendezvous.ReceiveAnswer(c)
		if err != nil {
			return got, !os.IsTimeout(err) && !strings.Contains(err.Error(), "i/o timeout")
		}
		got = a
	}
}

// TestKeepEnds: a claim whose holder is gone is not written to any more and is not called written; another holder's is begun again; an order that
// is withdrawn ends; one that is done is not done again; the guest's disk works through all of it.
func TestKeepEnds(t *testing.T) {
	k := newKept(t, false)
	slow := func() {
		_, _ = k.qemu.Run("block-job-set-speed", map[string]any{"device": fmt.Sprintf("keep%d", k.plugs.keeps.Count), "speed": 1 << 20})
	}
	begun := func(w launcherapi.Keep) bool { slow(); return w.Total > 0 }
	idle := func() bool { return len(k.plugs.keeps.All) == 0 && len(k.said.Load().Has) == 0 }
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	k.plugs.follow(order("u1"), time.Now()) // nothing is there to write to
	if got := k.said.Load(); len(got.Keeps) != 0 {
		t.Fatalf("it says %+v", got)
	}
	first := k.claim("first")
	holder := k.offer(first, false)
	k.until(order("u1"), "u1", begun)
	if got := k.said.Load().Has; len(got) != 1 || got[0] != "keep.root" {
		t.Errorf("it has %v", got)
	}
	_ = holder.Close()
	for began := time.Now(); !idle() && time.Since(began) < time.Minute; <-tick.C {
		k.plugs.follow(order("u1"), time.Now())
	}
	if w, ok := k.said.Load().Keeps["u1"]; ok || !idle() {
		t.Fatalf("without a holder it says %+v", w)
	}
	holder = k.offer(first, false)
	k.until(order("u1"), "u1", begun)
	for began := time.Now(); !idle() && time.Since(began) < time.Minute; <-tick.C {
		k.plugs.follow(launcherapi.Disks{}, time.Now())
	}
	if a, _ := answers(holder); !a.Released || !idle() {
		t.Errorf("the holder of what nobody wants any more has heard %+v", a)
	}
	k.offer(first, false)
	k.until(order("u1"), "u1", func(w launcherapi.Keep) bool { return w.Written })
	told := k.plugs.keeps.Count
	holder = k.offer(first, false)
	k.plugs.follow(order("u1"), time.Now())
	if a, gone := answers(holder); !a.Attached || gone || k.plugs.keeps.Count != told {
		t.Errorf("another holder of what is written has heard %+v", a)
	}
	k.plugs.follow(launcherapi.Disks{}, time.Now())
	if a, _ := answers(holder); !a.Released {
		t.Errorf("the holder of what is written has heard %+v", a)
	}
	k.guest("write -P 3 0 1M")
	k.guest("read -P 3 0 1M")
}

// TestKeepFails: what does not fit is said with the numbers, before anything is written and without harm to the guest; so is a medium
// that fails meanwhile.
func TestKeepFails(t *testing.T) {
	k := newKept(t, false)
	point, image := filepath.Join(k.dir, "point"), filepath.Join(k.dir, "image")
	hosttool.Run(t, "truncate", "-s", "32M", image)
	hosttool.Run(t, "mkfs.ext4", "-q", "-F", image)
	hosttool.Run(t, "mkdir", point)
	hosttool.Run(t, "mount", "-o", "loop", image, point)
	t.Cleanup(func() { hosttool.Run(t, "umount", "-l", point) })
	small, err := os.Create(filepath.Join(point, "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	holder := k.offer(small, false)
	w := k.until(order("u1"), "u1", launcherapi.Keep.Over)
	if !strings.Contains(w.Failed, "the claim is too small") || !strings.Contains(w.Failed, "67108864") || w.Written {
		t.Errorf("it says %+v", w)
	}
	_ = small.Close()
	if a, gone := answers(holder); !a.Attached || gone {
		t.Errorf("the holder has heard %+v", a)
	}
	loop := loopOf(t, image)
	device, err := os.OpenFile(loop, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	k.plugs.follow(launcherapi.Disks{}, time.Now())
	k.offer(device, true)
	if w := k.until(order("u2"), "u2", launcherapi.Keep.Over); !strings.Contains(w.Failed, "it has 33554432 bytes and the disk 67108864") {
		t.Errorf("it says %+v", w)
	}
	k.plugs.follow(launcherapi.Disks{}, time.Now())

	// A device that turns out to be smaller while it is written.
	shrinks := k.claim("shrinks")
	if err := shrinks.Truncate(keptSize); err != nil {
		t.Fatal(err)
	}
	loop = loopOf(t, shrinks.Name())
	k.guest("write -P 8 60M 4M")
	if device, err = os.OpenFile(loop, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	k.offer(device, true)
	k.until(order("u3"), "u3", func(w launcherapi.Keep) bool {
		_, _ = k.qemu.Run("block-job-set-speed", map[string]any{"device": fmt.Sprintf("keep%d", k.plugs.keeps.Count), "speed": 1 << 20})
		return w.Total > 0
	})
	if err := shrinks.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	hosttool.Run(t, "losetup", "-c", loop)
	_, _ = k.qemu.Run("block-job-set-speed", map[string]any{"device": fmt.Sprintf("keep%d", k.plugs.keeps.Count), "speed": 0})
	if w := k.until(order("u3"), "u3", launcherapi.Keep.Over); w.Written || w.Failed == "" {
		t.Errorf("on a medium that fails it says %+v", w)
	}
	k.guest("write -P 3 0 1M")
	k.guest("read -P 3 0 1M")
}
