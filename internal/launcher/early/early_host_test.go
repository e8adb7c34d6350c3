//go:build host

package early

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
)

// filledDisk is a real QEMU with a disk that a real worker fills, as libvirt has it.
type filledDisk struct {
	t     *testing.T
	path  string
	qemu  *qmp.Monitor
	open  atomic.Bool // the rest of the image may come
	end   context.CancelFunc
	ended chan task.Report
	task  task.Task
}

const filledSize = 16 << 20

func newFilledDisk(t *testing.T, checksum string) *filledDisk {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-early-") // unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &filledDisk{t: t, path: filepath.Join(dir, "disk.img")}
	image := bytes.Repeat([]byte{7}, filledSize)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(&stopped{w, r.Context(), &f.open, 0}, r, "disk", time.Time{}, bytes.NewReader(image))
	}))
	t.Cleanup(func() { f.open.Store(true); server.CloseClientConnections(); server.Close() })
	f.task = task.Task{Version: task.Version, Volume: "ns/v", Claim: "c", Early: true, Checksum: checksum, Source: task.Source{HTTP: &task.HTTP{URL: server.URL}},
		Target: task.Target{Path: f.path, Content: task.Disk}}
	f.work()
	var b *backing.Disk
	for b == nil {
		if b, err = Open(t.Context(), f.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // there is no event for it
	}
	defer leave(b.Early)
	socket := filepath.Join(dir, "monitor")
	args := []string{"-S", "-nodefaults", "-display", "none", "-machine", "q35", "-qmp", "unix:" + socket + ",server=on,wait=off",
		"-blockdev", `{"driver":"nbd","node-name":"libvirt-1-storage","server":{"type":"unix","path":"` + b.Remote.Socket + `"},"reconnect-delay":10}`,
		"-blockdev", `{"driver":"raw","node-name":"libvirt-1-format","discard":"unmap","file":"libvirt-1-storage"}`,
		"-device", "virtio-blk-pci,id=ua-root,werror=stop,drive=libvirt-1-format"}
	cmd := exec.Command("qemu-system-x86_64", args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // there is no event for it
		if f.qemu, err = qmp.Dial(t.Context(), socket); err == nil {
			return f
		}
	}
	t.Fatal(err)
	return nil
}

// stopped lets a request have some bytes, and the rest when it may.
type stopped struct {
	http.ResponseWriter
	ctx  context.Context
	open *atomic.Bool
	n    int
}

func (h *stopped) Write(p []byte) (int, error) {
	for h.n += len(p); h.n > 1<<20 && !h.open.Load() && h.ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // there is no event for it
	}
	return h.ResponseWriter.Write(p)
}

func (f *filledDisk) work() {
	ctx, cancel := context.WithCancel(context.Background())
	f.end, f.ended = cancel, make(chan task.Report, 1)
	ended := f.ended
	go func() { ended <- transfer.New(f.task).Run(ctx) }()
	f.t.Cleanup(cancel)
}

// guest reads or writes as the guest would.
func (f *filledDisk) guest(command string) {
	f.t.Helper()
	answer, err := f.qemu.Run("human-monitor-command", map[string]string{"command-line": `qemu-io -d /machine/peripheral/ua-root/virtio-backend "` + command + `"`})
	if err != nil || strings.Contains(string(answer), "rror") || strings.Contains(string(answer), "failed") {
		f.t.Fatalf("%s: %v: %s", command, err, answer)
	}
}

// TestEarlyMoves: a guest uses a disk that is being filled, its worker ends in between and comes back, and when everything is there
// QEMU has the file itself, under the names that libvirt knows, and the worker is done.
func TestEarlyMoves(t *testing.T) {
	f := newFilledDisk(t, "")
	var said atomic.Pointer[string]
	e := &Disks{qemu: f.qemu, log: slog.New(slog.DiscardHandler), disks: map[string]string{"root": f.path}, Said: &said,
		Hold: func(bool) error { return nil }, Busy: func() bool { return false }}
	f.guest("read -P 7 12M 64k")
	f.guest("write -P 9 1M 128k")
	f.guest("write -P 3 15M 4k")
	if e.look(); len(e.disks) != 1 {
		t.Fatal("moved before the disk was complete")
	}
	f.end()
	<-f.ended
	f.work()
	f.guest("write -P 4 8M 4k") // waits for the next worker
	f.guest("flush")
	f.open.Store(true)
	for began := time.Now(); len(e.disks) > 0; time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // there is no event for it
		if e.look(); time.Since(began) > 2*time.Minute {
			_, err := os.Stat(f.path)
			t.Fatalf("not moved: %v, %v", e.move("root", f.path), err)
		}
	}
	select {
	case r := <-f.ended:
		if r.Outcome != task.Done {
			t.Fatalf("report %+v", r)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the worker is still there")
	}
	nodes, err := f.qemu.Nodes()
	if err != nil || len(nodes) != 2 || nodes["libvirt-1-storage"].Driver != "file" {
		t.Errorf("%v: %+v", err, nodes)
	}
	f.guest("write -P 5 2M 4k")
	f.guest("flush")
	want := bytes.Repeat([]byte{7}, filledSize)
	for at, b := range map[int][2]int{1 << 20: {9, 128 << 10}, 15 << 20: {3, 4 << 10}, 8 << 20: {4, 4 << 10}, 2 << 20: {5, 4 << 10}} {
		copy(want[at:], bytes.Repeat([]byte{byte(b[0])}, b[1]))
	}
	if got, err := os.ReadFile(f.path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the disk is not the image with what the guest wrote: %v", err)
	}
	if again, err := Open(t.Context(), f.path); again != nil || err != nil {
		t.Errorf("a disk that is there is still had from a worker: %v, %v", again, err)
	}
}

// TestEarlyCondemned: a guest whose disk turns out bad stands still, and there is word of why.
func TestEarlyCondemned(t *testing.T) {
	f := newFilledDisk(t, "sha256:"+strings.Repeat("0", 64))
	var said atomic.Pointer[string]
	var stops []bool
	e := &Disks{qemu: f.qemu, log: slog.New(slog.DiscardHandler), disks: map[string]string{"root": f.path}, Said: &said,
		Hold: func(stop bool) error { stops = append(stops, stop); return nil }, Busy: func() bool { return false }}
	f.guest("write -P 9 1M 128k")
	f.open.Store(true)
	if r := <-f.ended; r.Reason != task.ChecksumMismatch {
		t.Fatalf("report %+v", r)
	}
	e.look()
	if text := *said.Load(); fmt.Sprint(stops) != "[true]" || !strings.Contains(text, "volume root") || !strings.Contains(text, "checksum") {
		t.Errorf("stopped %v, and said %q", stops, text)
	}
	if err := earlyboot.Verdict.TakeBack(f.path); err != nil {
		t.Fatal(err)
	}
	if e.look(); fmt.Sprint(stops) != "[true false]" || *said.Load() != "" {
		t.Errorf("stopped %v, and said %q", stops, *said.Load())
	}
}
