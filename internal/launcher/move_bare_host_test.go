//go:build host

package launcher

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/berth-vm/berth/internal/testing/hosttool"
)

// bare is how long QEMU takes to mirror the data from one process to another through a socket, with no relay, no TLS, no libvirt and no
// guest: what a move on this machine could be at best, whatever carries it.
func (w *world) bare(data string) time.Duration {
	w.t.Helper()
	from, to, socket := filepath.Join(w.dir, "bare-from"), filepath.Join(w.dir, "bare-to"), filepath.Join(w.dir, "bare.sock")
	hosttool.Run(w.t, "cp", data, from)
	for _, f := range []string{from, to} {
		hosttool.Run(w.t, "truncate", "-s", strconv.Itoa(benchDisk), f)
	}
	file := func(name string) string { return "driver=file,node-name=disk,discard=unmap,filename=" + name }
	target := w.daemon("--blockdev", file(to), "--nbd-server", "addr.type=unix,addr.path="+socket,
		"--export", "nbd,id=e,node-name=disk,name=disk,writable=on")
	source := w.daemon("--blockdev", file(from))
	source.run("blockdev-add", map[string]any{"driver": "nbd", "node-name": "far", "export": "disk",
		"server": map[string]any{"type": "unix", "path": socket}})
	began := time.Now()
	source.run("blockdev-mirror", map[string]any{"job-id": "m", "device": "disk", "target": "far", "sync": "top"})
	source.event("BLOCK_JOB_READY")
	took := time.Since(began)
	for _, d := range []*daemon{source, target} {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	}
	hosttool.Run(w.t, "cmp", "-n", strconv.Itoa(benchData), data, to)
	hosttool.Run(w.t, "rm", from, to)
	return took
}

// daemon is QEMU's block layer as a process of its own.
type daemon struct {
	w    *world
	cmd  *exec.Cmd
	to   *json.Encoder
	from *bufio.Scanner
}

func (w *world) daemon(args ...string) *daemon {
	w.t.Helper()
	c := exec.Command("qemu-storage-daemon", append(args, "--chardev", "stdio,id=c", "--monitor", "chardev=c")...)
	in, err := c.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Process.Kill() })
	d := &daemon{w: w, cmd: c, to: json.NewEncoder(in), from: bufio.NewScanner(out)}
	d.until("its greeting", func(said map[string]json.RawMessage) bool { return said["QMP"] != nil })
	d.run("qmp_capabilities", nil)
	return d
}

func (d *daemon) until(what string, is func(map[string]json.RawMessage) bool) {
	d.w.t.Helper()
	for d.from.Scan() {
		var said map[string]json.RawMessage
		if err := json.Unmarshal(d.from.Bytes(), &said); err != nil || said["error"] != nil {
			d.w.t.Fatalf("wait for %s: %s %v", what, d.from.Text(), err)
		}
		if is(said) {
			return
		}
	}
	d.w.t.Fatalf("QEMU ended before %s", what)
}

func (d *daemon) run(command string, arguments map[string]any) {
	d.w.t.Helper()
	said := map[string]any{"execute": command}
	if arguments != nil {
		said["arguments"] = arguments
	}
	if err := d.to.Encode(said); err != nil {
		d.w.t.Fatal(err)
	}
	d.until(command, func(said map[string]json.RawMessage) bool { return said["return"] != nil })
}

func (d *daemon) event(name string) {
	d.w.t.Helper()
	d.until(name, func(said map[string]json.RawMessage) bool { return string(said["event"]) == fmt.Sprintf("%q", name) })
}
