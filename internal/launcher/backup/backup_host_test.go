//go:build host

package backup

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/nbd"
)

const (
	diskSize = 80 << 20
	places   = 1024
)

// machine is a real QEMU whose guest writes numbers to two disks, one after the other.
type machine struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	conn net.Conn
	in   *json.Decoder
}

var disks = []Disk{
	{Volume: "root", Node: "n-root", Device: "/machine/peripheral/ua-root", Size: diskSize},
	{Volume: "data", Node: "n-data", Device: "/machine/peripheral/ua-data", Size: diskSize},
}

func tool(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, arguments, err, out)
	}
}

// prepare makes the guest's program. It has no disks yet.
func prepare(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	tool(t, "as", "--32", "-o", filepath.Join(m.dir, "writer.o"), "testdata/writer.s")
	tool(t, "ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "-o", filepath.Join(m.dir, "writer"), filepath.Join(m.dir, "writer.o"))
	return m
}

// sector is the guest's program.
func (m *machine) sector() []byte {
	m.t.Helper()
	sector, err := os.ReadFile(filepath.Join(m.dir, "writer"))
	if err != nil {
		m.t.Fatal(err)
	}
	return sector
}

// newMachine makes the disks and starts the guest.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := prepare(t)
	sector := m.sector()
	for _, d := range disks {
		// not zeroes, which would take no room in the scratch
		data := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog, 64 bytes at a time."), diskSize/64)
		if d.Volume == "root" {
			copy(data, sector)
		}
		for at := 64 << 10; at < 64<<10*(places+1); at += 64 << 10 {
			clear(data[at : at+4])
		}
		if err := os.WriteFile(m.disk(d), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.start(nil)
	return m
}

func (m *machine) disk(d Disk) string { return filepath.Join(m.dir, d.Volume+".img") }

// start starts QEMU. What is to be done before the guest runs is done by before.
func (m *machine) start(before func()) {
	m.t.Helper()
	socket := filepath.Join(m.dir, "qmp.sock")
	_ = os.Remove(socket)
	arguments := []string{"-S", "-M", "q35", "-m", "32", "-nodefaults", "-display", "none", "-no-shutdown", "-qmp", "unix:" + socket + ",server=on,wait=off"}
	for i, d := range disks {
		arguments = append(arguments,
			"-blockdev", fmt.Sprintf(`{"driver":"raw","node-name":%q,"discard":"unmap","file":{"driver":"file","filename":%q}}`, d.Node, m.disk(d)),
			"-device", fmt.Sprintf("virtio-blk-pci,id=ua-%s,drive=%s,werror=stop,bootindex=%d", d.Volume, d.Node, i+1))
	}
	m.cmd = exec.Command("qemu-system-x86_64", arguments...)
	m.cmd.Stderr = os.Stderr
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(m.kill)
	wait(m.t, "QEMU's monitor", func() (err error) { m.conn, err = net.Dial("unix", socket); return err })
	m.in = json.NewDecoder(m.conn)
	m.run("qmp_capabilities", nil)
	if before != nil {
		before()
	}
	m.run("cont", nil)
}

func (m *machine) kill() { _ = m.cmd.Process.Kill(); _ = m.cmd.Wait() }

// Run implements QEMU.
func (m *machine) Run(command string, arguments any) (json.RawMessage, error) {
	said := args{"execute": command}
	if arguments != nil {
		said["arguments"] = arguments
	}
	if err := json.NewEncoder(m.conn).Encode(said); err != nil {
		return nil, err
	}
	for {
		var r struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := m.in.Decode(&r); err != nil {
			return nil, err
		}
		if r.Error != nil {
			return nil, errors.New(r.Error.Desc)
		}
		if r.Return != nil {
			return r.Return, nil
		}
	}
}

func (m *machine) run(command string, arguments any) json.RawMessage {
	m.t.Helper()
	answer, err := m.Run(command, arguments)
	if err != nil {
		m.t.Fatalf("%s: %v", command, err)
	}
	return answer
}

func wait(t *testing.T, what string, is func() error) {
	t.Helper()
	var err error
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < time.Minute; <-tick.C {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatalf("wait for %s: %v", what, err)
}

// writes returns how many writes the guest has made to its first disk, and how many of them failed.
func (m *machine) writes() (made, failed int) {
	m.t.Helper()
	var all []struct {
		Device string `json:"qdev"`
		Stats  struct {
			Made   int `json:"wr_operations"`
			Failed int `json:"failed_wr_operations"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(m.run("query-blockstats", nil), &all); err != nil {
		m.t.Fatal(err)
	}
	for _, d := range all {
		if strings.Contains(d.Device, "ua-root") {
			return d.Stats.Made, d.Stats.Failed
		}
	}
	m.t.Fatal("QEMU counts nothing")
	return 0, 0
}

// writesMore waits until the guest has made that many more writes.
func (m *machine) writesMore(n int) {
	m.t.Helper()
	before, _ := m.writes()
	wait(m.t, "the guest's writes", func() error {
		if now, _ := m.writes(); now < before+n {
			return fmt.Errorf("%d", now-before)
		}
		return nil
	})
}

func (m *machine) begin(o Order) *Moment {
	m.t.Helper()
	o.Disks = disks
	if o.Scratch == "" {
		o.Scratch = m.t.TempDir()
	}
	moment, err := Begin(m.t.Context(), m, o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Logf("the guest stood still for %v", moment.Stood)
	return moment
}

func (m *machine) end(moment *Moment, complete bool) {
	m.t.Helper()
	if err := moment.End(complete); err != nil {
		m.t.Fatal(err)
	}
	if nodes := string(m.run("query-named-block-nodes", args{"flat": true})); strings.Contains(nodes, "moment-") || strings.Contains(nodes, frozen) {
		m.t.Errorf("the moment left something behind: %s", nodes)
	}
}

// read reads a disk of the moment: all of it, or what changed over the contents of before.
func read(t *testing.T, moment *Moment, d Disk, before []byte) []byte {
	t.Helper()
	conn, err := net.Dial("unix", moment.Socket)
	if err != nil {
		t.Fatal(err)
	}
	context := "base:allocation"
	if moment.Incremental && before != nil {
		context = Bitmap
	}
	c, err := nbd.Open(conn, d.Volume, context)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if c.Size() != d.Size {
		t.Fatalf("disk %s has %d bytes", d.Volume, c.Size())
	}
	out := bytes.Clone(before)
	if before == nil {
		out = make([]byte, d.Size)
	}
	changed := int64(0)
	err = c.Extents(context, func(e nbd.Extent) error {
		if before != nil && e.Flags&nbd.Dirty == 0 || before == nil && e.Flags&nbd.Zero != 0 {
			return nil
		}
		changed += e.Length
		_, err := c.ReadAt(out[e.Offset:e.Offset+e.Length], e.Offset)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if before != nil && changed > d.Size/2 {
		t.Errorf("disk %s: %d bytes changed", d.Volume, changed)
	}
	return out
}

// counts returns the number that a disk's contents are of, after it has compared every place with the writes up to that number.
func counts(t *testing.T, d Disk, data []byte) uint32 {
	t.Helper()
	last := uint32(0)
	for p := 1; p <= places; p++ {
		last = max(last, binary.LittleEndian.Uint32(data[p<<16:]))
	}
	want := make([]uint32, places)
	for k := uint32(1); k <= last; k++ {
		want[k*40503&(places-1)] = k
	}
	for p, k := range want {
		if got := binary.LittleEndian.Uint32(data[(p+1)<<16:]); got != k {
			t.Errorf("disk %s, of write %d: place %d has %d, want %d", d.Volume, last, p, got, k)
		}
	}
	return last
}

// sameMoment fails unless both disks are of one moment.
func sameMoment(t *testing.T, root, data []byte) uint32 {
	t.Helper()
	a, b := counts(t, disks[0], root), counts(t, disks[1], data)
	if a != b && a != b+1 {
		t.Errorf("the disks are of different moments: write %d and write %d", a, b)
	}
	return a
}

func checkpoint(name string) Checkpoint { return Checkpoint{Tracker: "daily", Name: name} }

// TestIncrements: a full backup and five increments of a guest that writes all the time; each is both disks of one moment. A backup that is
// given up in between changes nothing.
func TestIncrements(t *testing.T) {
	m := newMachine(t)
	m.writesMore(20)
	first := m.begin(Order{Checkpoint: checkpoint("c0")})
	if first.Incremental || first.Full != "" {
		t.Errorf("the first backup: %+v", first)
	}
	m.writesMore(50)
	root, data := read(t, first, disks[0], nil), read(t, first, disks[1], nil)
	last := sameMoment(t, root, data)
	m.end(first, true)
	for i := 1; i <= 5; i++ {
		m.writesMore(30)
		o := Order{Since: checkpoint(fmt.Sprint("c", i-1)), Checkpoint: checkpoint(fmt.Sprint("c", i))}
		given := m.begin(o)
		m.writesMore(10)
		m.end(given, false)
		m.writesMore(10)
		next := m.begin(o)
		if !next.Incremental {
			t.Fatalf("increment %d is full: %s", i, next.Full)
		}
		m.writesMore(30)
		root, data = read(t, next, disks[0], root), read(t, next, disks[1], data)
		if whole := read(t, next, disks[0], nil); !bytes.Equal(whole, root) {
			t.Errorf("increment %d is not the disk", i)
		}
		now := sameMoment(t, root, data)
		if now <= last {
			t.Errorf("increment %d has write %d, the one before %d", i, now, last)
		}
		last = now
		m.end(next, true)
	}
	if _, failed := m.writes(); failed != 0 {
		t.Errorf("%d writes of the guest failed", failed)
	}
	lost := m.begin(Order{Since: checkpoint("c3"), Checkpoint: checkpoint("c6")})
	if lost.Incremental || !strings.Contains(lost.Full, "c3") {
		t.Errorf("since a checkpoint that is no longer recorded: %+v", lost)
	}
	m.end(lost, false)
}

// TestScratchRunsFull: the guest continues, and the moment cannot be read any more.
func TestScratchRunsFull(t *testing.T) {
	m := newMachine(t)
	scratch := t.TempDir()
	tool(t, "mount", "-t", "tmpfs", "-o", "size=2m", "none", scratch)
	defer tool(t, "umount", scratch)
	moment := m.begin(Order{Scratch: scratch, Checkpoint: checkpoint("c0")})
	m.writesMore(300)
	if _, failed := m.writes(); failed != 0 {
		t.Errorf("%d writes of the guest failed", failed)
	}
	conn, err := net.Dial("unix", moment.Socket)
	if err != nil {
		t.Fatal(err)
	}
	c, err := nbd.Open(conn, "root", "base:allocation")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, io.NewSectionReader(c, 0, c.Size())); err == nil {
		t.Error("a moment that is not kept was read")
	}
	m.end(moment, false)
	m.writesMore(10)
}

// TestScratchIsLimited: the guest overwrites more than the scratch may take, and continues; it is known which disk cannot be read.
func TestScratchIsLimited(t *testing.T) {
	m := newMachine(t)
	scratch := t.TempDir()
	moment := m.begin(Order{Scratch: scratch, Checkpoint: checkpoint("c0"), Room: 4 << 20})
	if over := moment.Overrun(); len(over) != 0 {
		t.Errorf("nothing was written, and %v overran", over)
	}
	m.writesMore(300)
	if _, failed := m.writes(); failed != 0 {
		t.Errorf("%d writes of the guest failed", failed)
	}
	if over := moment.Overrun(); len(over) != len(disks) {
		t.Errorf("overran: %v", over)
	}
	if out, err := exec.Command("du", "-k", "--total", scratch).CombinedOutput(); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("%s", out)
	}
	m.end(moment, false)
	m.writesMore(10)
}

// TestMomentCannotBeHad: nothing is left of it, and the guest runs.
func TestMomentCannotBeHad(t *testing.T) {
	m := newMachine(t)
	for name, o := range map[string]Order{
		"no scratch": {Scratch: filepath.Join(t.TempDir(), "missing"), Disks: disks},
		"no disk":    {Scratch: t.TempDir(), Disks: append([]Disk{{Volume: "gone", Node: "gone", Device: "/machine/peripheral/gone", Size: 1 << 20}}, disks...)},
		"no device":  {Scratch: t.TempDir(), Disks: []Disk{disks[0], {Volume: "data", Node: "n-data", Device: "/machine/peripheral/gone", Size: diskSize}}},
	} {
		o.Checkpoint = checkpoint("c0")
		if _, err := Begin(t.Context(), m, o); err == nil {
			t.Errorf("%s: there is a moment", name)
		}
		if nodes := string(m.run("query-named-block-nodes", args{"flat": true})); strings.Contains(nodes, prefix) {
			t.Errorf("%s: something is left behind: %s", name, nodes)
		}
		m.writesMore(5)
	}
}

// TestRecordsOutliveTheGuest: what a guest changed before it ended in order is in the next backup; after a crash the next backup has all data.
func TestRecordsOutliveTheGuest(t *testing.T) {
	m := newMachine(t)
	sidecar := func(d Disk) Sidecar {
		return Sidecar{Disk: d, Path: filepath.Join(m.dir, "."+d.Volume+".berth"), Work: t.TempDir()}
	}
	first := m.begin(Order{Checkpoint: checkpoint("c0")})
	m.writesMore(10)
	root, data := read(t, first, disks[0], nil), read(t, first, disks[1], nil)
	m.end(first, true)
	m.writesMore(60)
	m.run("stop", nil)
	for _, d := range disks {
		if err := sidecar(d).Save(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	m.kill()
	load := func() (lost []string) {
		for _, d := range disks {
			why, err := sidecar(d).Load(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(sidecar(d).Path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file is still there: %v", err)
			}
			if why != "" {
				lost = append(lost, why)
			}
		}
		return lost
	}
	m.start(func() {
		if lost := load(); len(lost) > 0 {
			t.Errorf("lost: %v", lost)
		}
	})
	// The guest counts from 1 again: what it writes now is among what it wrote before, and so are the changes.
	m.writesMore(20)
	m.run("stop", nil)
	next := m.begin(Order{Since: checkpoint("c0"), Checkpoint: checkpoint("c1")})
	if !next.Incremental {
		t.Fatalf("after a restart: %s", next.Full)
	}
	for i, before := range [][]byte{root, data} {
		if got, want := read(t, next, disks[i], before), read(t, next, disks[i], nil); !bytes.Equal(got, want) {
			t.Errorf("disk %s after a restart is not as its increment says", disks[i].Volume)
		}
	}
	m.end(next, true)

	m.kill() // nothing was saved
	m.start(func() { load() })
	crashed := m.begin(Order{Since: checkpoint("c1"), Checkpoint: checkpoint("c2")})
	if crashed.Incremental || crashed.Full == "" {
		t.Errorf("after a crash: %+v", crashed)
	}
	m.end(crashed, true)

	// What others put in its place is refused, and removed.
	m.run("stop", nil)
	path := sidecar(disks[0]).Path
	for name, make := range map[string]func(){
		"a backing file": func() { tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", m.disk(disks[1]), "-F", "raw", path) },
		"another size":   func() { tool(t, "qemu-img", "create", "-q", "-f", "qcow2", path, "64M") },
		"a data file": func() {
			tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "data_file="+filepath.Join(m.dir, "other"), path, fmt.Sprint(diskSize))
		},
		"no image": func() { tool(t, "truncate", "-s", "1M", path) },
	} {
		make()
		if lost := load(); len(lost) != 1 {
			t.Errorf("%s: %v", name, lost)
		}
	}
	tool(t, "ln", "-s", m.disk(disks[1]), path)
	load()
	if _, err := os.Stat(m.disk(disks[1])); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}
