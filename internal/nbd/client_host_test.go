//go:build host

package nbd

import (
	"bytes"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestClientReadsFromQEMU reads a disk with a dirty bitmap from QEMU's own server: its bytes, what is allocated and what has changed.
func TestClientReadsFromQEMU(t *testing.T) {
	const mib = 1 << 20
	dir := t.TempDir()
	disk, socket := filepath.Join(dir, "disk.qcow2"), filepath.Join(dir, "nbd.sock")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	want := make([]byte, 64*mib)
	write := func(at, n int) {
		t.Helper()
		if _, err := rand.Read(want[at : at+n]); err != nil {
			t.Fatal(err)
		}
		raw := filepath.Join(dir, "part")
		if err := os.WriteFile(raw, want[at:at+n], 0o600); err != nil {
			t.Fatal(err)
		}
		run("qemu-io", "-f", "qcow2", "-c", "write -q -s "+raw+" "+itoa(at)+" "+itoa(n), disk)
	}
	run("qemu-img", "create", "-q", "-f", "qcow2", disk, itoa(len(want)))
	write(0, 9*mib)
	write(33*mib, mib)
	run("qemu-img", "bitmap", "--add", "-g", "65536", disk, "since")
	write(4*mib, 64<<10)
	write(50*mib, 2*mib)

	server := exec.Command("qemu-nbd", "-r", "-t", "-e", "0", "-A", "-B", "since", "-f", "qcow2", "-x", "vda", "-k", socket, disk)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	dial := func() net.Conn {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(10 * time.Second); ; <-tick.C {
			conn, err := net.Dial("unix", socket)
			if err == nil {
				return conn
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	if _, err := Open(dial(), "other"); err == nil {
		t.Error("an export that does not exist was opened")
	}
	if _, err := Open(dial(), "vda", "qemu:dirty-bitmap:other"); err == nil {
		t.Error("a bitmap that does not exist was selected")
	}
	c, err := Open(dial(), "vda", "base:allocation", "qemu:dirty-bitmap:since")
	if err != nil {
		t.Fatal(err)
	}
	if c.Size() != int64(len(want)) {
		t.Fatalf("size %d", c.Size())
	}
	var all sync.WaitGroup
	for at := 0; at < len(want); at += 16 * mib {
		all.Go(func() {
			got := make([]byte, 16*mib)
			if _, err := c.ReadAt(got, int64(at)); err != nil || !bytes.Equal(got, want[at:at+16*mib]) {
				t.Errorf("read at %d: %v", at, err)
			}
		})
	}
	all.Wait()
	extents := func(context string, flag uint32, set bool) (out [][2]int64) {
		t.Helper()
		at := int64(0)
		err := c.Extents(context, func(e Extent) error {
			if e.Offset != at {
				t.Errorf("%s: extent at %d, want %d", context, e.Offset, at)
			}
			at += e.Length
			if e.Flags&flag != 0 == set {
				out = append(out, [2]int64{e.Offset, e.Length})
			}
			return nil
		})
		if err != nil || at != c.Size() {
			t.Errorf("%s: extents up to %d: %v", context, at, err)
		}
		return out
	}
	if got := extents("qemu:dirty-bitmap:since", Dirty, true); !equal(got, [][2]int64{{4 * mib, 64 << 10}, {50 * mib, 2 * mib}}) {
		t.Errorf("changed: %v", got)
	}
	if got := extents("base:allocation", Zero, false); !equal(got, [][2]int64{{0, 9 * mib}, {33 * mib, mib}, {50 * mib, 2 * mib}}) {
		t.Errorf("allocated: %v", got)
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadAt(make([]byte, 8*mib), 0); err == nil {
		t.Error("a server that is gone was read from")
	}
	_ = c.Close()
}
