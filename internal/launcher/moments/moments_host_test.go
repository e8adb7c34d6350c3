//go:build host

package moments_test

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backup"
	"github.com/berth-vm/berth/internal/launcher/moments"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/guestdisk"
)

const size = 16 << 20

// qemu is a QEMU with one disk and no guest.
type qemu struct {
	conn net.Conn
	in   *json.Decoder
}

func (q *qemu) Run(command string, arguments any) (json.RawMessage, error) {
	said := map[string]any{"execute": command}
	if arguments != nil {
		said["arguments"] = arguments
	}
	if err := json.NewEncoder(q.conn).Encode(said); err != nil {
		return nil, err
	}
	for {
		var r struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := q.in.Decode(&r); err != nil {
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

// world is a machine whose disk can be written to, and the keeper of its moments.
type world struct {
	t      *testing.T
	q      *qemu
	k      *moments.Keeper
	dir    string
	set    string
	moving bool
	held   int
	ca     *pki.Authority
	guest  moments.Guest
}

// idle sets how long a moment is held that nobody reads.
func (w *world) idle(d time.Duration) {
	w.guest.Idle = d
	w.k = moments.New(w.guest)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), set: filepath.Join(t.TempDir(), "web")}
	disk, socket := filepath.Join(w.dir, "root.img"), filepath.Join(w.dir, "qmp.sock")
	if err := os.WriteFile(disk, []byte(strings.Repeat("before..", size/8)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("qemu-system-x86_64", "-S", "-M", "q35", "-m", "32", "-nodefaults", "-display", "none", "-qmp", "unix:"+socket+",server=on,wait=off",
		"-blockdev", fmt.Sprintf(`{"driver":"raw","node-name":"n-root","discard":"unmap","file":{"driver":"file","filename":%q}}`, disk),
		"-device", "virtio-blk-pci,id=ua-root,drive=n-root")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for until := time.Now().Add(30 * time.Second); ; <-time.After(20 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			w.q = &qemu{conn, json.NewDecoder(conn)}
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	w.must(w.q.Run("qmp_capabilities", nil))
	w.guest = moments.Guest{QEMU: w.q, Dir: w.dir, Log: slog.New(slog.DiscardHandler),
		Disks: func() (map[string]moments.Disk, error) {
			return map[string]moments.Disk{"root": {Target: "vda", Disk: backup.Disk{Volume: "root", Node: "n-root",
				Device: "/machine/peripheral/ua-root/virtio-backend", Size: size}}}, nil // as query-block names it
		},
		Freeze: func() error { return errors.New("no agent answers") }, Thaw: func() error { return nil },
		Still: func() (func(), bool) {
			if w.moving || w.held > 0 {
				return nil, false
			}
			w.held++
			return func() { w.held-- }, true
		},
		Alone: func(do func() error) error { return do() },
	}
	w.k = moments.New(w.guest)
	var err error
	if w.ca, err = pki.New("backup", time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) must(_ json.RawMessage, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// write writes to the disk as the guest would: the filter, if there is one, sees it.
func (w *world) write(text string, at int) {
	w.t.Helper()
	answer, err := w.q.Run("query-block", nil)
	w.must(answer, err)
	var all []struct {
		Inserted struct {
			Node string `json:"node-name"`
		} `json:"inserted"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		w.t.Fatal(err)
	}
	device := "/machine/peripheral/ua-root/virtio-backend"
	answer, err = w.q.Run("human-monitor-command", map[string]string{"command-line": fmt.Sprintf("qemu-io -d %s \"write -P 0x%x %d 64k\"", device, text[0], at)})
	w.must(answer, err)
	if strings.Contains(string(answer), "rror") {
		w.t.Fatalf("write: %s", answer)
	}
}

func (w *world) order(id, since string) launcherapi.BackupOrder {
	w.t.Helper()
	keys, err := w.ca.Issue(pki.Leaf{Name: launcherapi.BackupServer, DNSNames: []string{launcherapi.BackupServer}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return launcherapi.BackupOrder{ID: id, Tracker: "t", Checkpoint: id, Since: since, Volumes: []string{"root"}, Quiesce: true,
		Certificate: string(keys.Certificate), Key: string(keys.Key), Clients: string(pki.PEM(w.ca.Certificate().Raw))}
}

func (w *world) do(o launcherapi.BackupOrder) launcherapi.BackupMoment {
	w.t.Helper()
	line, err := o.Line()
	if err == nil {
		o, err = launcherapi.ReadBackupOrder(line)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := w.k.Do(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// worker writes the backup as the worker's program does. by signs its certificate.
func (w *world) worker(m launcherapi.BackupMoment, id, parent string, by *pki.Authority, name string) task.Report {
	w.t.Helper()
	keys, err := by.Issue(pki.Leaf{Name: name, Use: x509.ExtKeyUsageClientAuth, Lasts: time.Hour}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	for file, text := range map[string][]byte{"tls.crt": keys.Certificate, "tls.key": keys.Key, "ca.crt": pki.PEM(w.ca.Certificate().Raw)} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	b := task.BackUp{Version: task.Version, Machine: "team/web", Address: fmt.Sprintf("127.0.0.1:%d", m.Port), Server: launcherapi.BackupServer, TLSDir: dir,
		Disks: []string{"root"}, Set: w.set, Checkpoint: id, Moment: m.Moment, Created: m.Time, Parent: parent}
	if m.Incremental {
		b.Bitmap = launcherapi.BackupBitmap
	} else if parent != "" {
		b.Compare, b.Lost = true, m.Full
	}
	return guestdisk.NewJob(b).Run(w.t.Context())
}

// at returns what a backup has at a place of the disk.
func (w *world) at(checkpoint string, place int64) byte {
	w.t.Helper()
	to := filepath.Join(w.t.TempDir(), "disk.img")
	job := transfer.New(task.Task{Version: task.Version, Volume: "team/vol", Claim: "claim",
		Source: task.Source{Backup: &task.Backup{Set: task.Source{Local: &task.Local{Path: w.set}}, Checkpoint: checkpoint, Disk: "root"}},
		Target: task.Target{Path: to, Content: task.Disk}})
	if r := job.Run(w.t.Context()); r.Outcome != task.Done {
		w.t.Fatalf("restore: %+v", r)
	}
	p, err := os.ReadFile(to)
	if err != nil {
		w.t.Fatal(err)
	}
	return p[place]
}

// TestBackups: a full backup and an increment are written over the network while the guest writes, and each is its moment.
func TestBackups(t *testing.T) {
	w := newWorld(t)
	m := w.do(w.order("b1", ""))
	if m.Incremental || m.Full != "" || m.Quiesced || m.Unquiesced != "no agent answers" || len(m.Disks) != 1 || m.Disks[0].Target != "vda" {
		t.Errorf("the moment is %+v", m)
	}
	w.write("x", 1<<20) // is not in it
	if again := w.do(w.order("b1", "")); again.Moment != m.Moment {
		t.Error("the same order made another moment")
	}
	if r := w.worker(m, "b1", "", w.ca, launcherapi.BackupClient); r.Outcome != task.Done || r.Backup.Incremental || r.Backup.Manifest == "" {
		t.Fatalf("%+v", r)
	}
	w.do(launcherapi.BackupOrder{ID: "b1", End: true, Complete: true})
	w.do(launcherapi.BackupOrder{ID: "b1", End: true, Complete: true}) // the answer was lost
	if w.held != 0 {
		t.Error("the disks are kept still after the end")
	}
	w.write("y", 2<<20)
	if m = w.do(w.order("b2", "b1")); !m.Incremental {
		t.Fatalf("%+v", m)
	}
	w.write("z", 3<<20)
	r := w.worker(m, "b2", "b1", w.ca, launcherapi.BackupClient)
	if r.Outcome != task.Done || !r.Backup.Incremental || r.Written > 1<<20 {
		t.Errorf("%+v", r)
	}
	w.do(launcherapi.BackupOrder{ID: "b2", End: true, Complete: true})
	got := fmt.Sprintf("%c%c%c %c%c%c", w.at("b1", 1<<20), w.at("b1", 2<<20), w.at("b1", 3<<20), w.at("b2", 1<<20), w.at("b2", 2<<20), w.at("b2", 3<<20))
	if got != "bbb xyb" {
		t.Errorf("the backups have %q", got)
	}
}

// TestHolesAreNotWritten: of a disk that holds little, a full backup has little.
func TestHolesAreNotWritten(t *testing.T) {
	w := newWorld(t)
	w.must(w.q.Run("human-monitor-command", map[string]string{"command-line": "qemu-io -d /machine/peripheral/ua-root/virtio-backend \"discard 1M 15M\""}))
	m := w.do(w.order("b1", ""))
	r := w.worker(m, "b1", "", w.ca, launcherapi.BackupClient)
	if r.Outcome != task.Done || r.Written > 3<<20 {
		t.Errorf("%+v", r)
	}
}

// TestLostRecord: nothing recorded what changed, as after a crash or a move: the disk is compared with the backup before, and the next one is an
// increment of one moment all the same, that has only what differs.
func TestLostRecord(t *testing.T) {
	w := newWorld(t)
	m := w.do(w.order("b1", ""))
	if r := w.worker(m, "b1", "", w.ca, launcherapi.BackupClient); r.Outcome != task.Done {
		t.Fatalf("%+v", r)
	}
	w.do(launcherapi.BackupOrder{ID: "b1", End: true})
	w.write("y", 2<<20)
	m = w.do(w.order("b2", "b1"))
	if m.Incremental || m.Full == "" {
		t.Fatalf("the record is there: %+v", m)
	}
	w.write("z", 3<<20) // is not in it
	r := w.worker(m, "b2", "b1", w.ca, launcherapi.BackupClient)
	if r.Outcome != task.Done || !r.Backup.Incremental || !r.Backup.Compared || r.Backup.Lost != m.Full || r.Written > 1<<20 {
		t.Errorf("%+v", r)
	}
	if got := fmt.Sprintf("%c%c %c%c", w.at("b1", 2<<20), w.at("b1", 3<<20), w.at("b2", 2<<20), w.at("b2", 3<<20)); got != "bb yb" {
		t.Errorf("the backups have %q", got)
	}
}

// TestLostParent: the changes are recorded and the backup that they are since is not in the claim any more: all data is written, and it says why.
func TestLostParent(t *testing.T) {
	w := newWorld(t)
	m := w.do(w.order("b1", ""))
	if r := w.worker(m, "b1", "", w.ca, launcherapi.BackupClient); r.Outcome != task.Done {
		t.Fatalf("%+v", r)
	}
	w.do(launcherapi.BackupOrder{ID: "b1", End: true, Complete: true})
	if err := os.RemoveAll(w.set); err != nil {
		t.Fatal(err)
	}
	m = w.do(w.order("b2", "b1"))
	r := w.worker(m, "b2", "b1", w.ca, launcherapi.BackupClient)
	if r.Outcome != task.Done || r.Backup.Incremental || !strings.Contains(r.Backup.Full, "backup b1, which it was to be made on, cannot be read") {
		t.Errorf("%+v", r)
	}
}

// TestOrders: what is asked beside a moment, against it, or after it was given up has its answer.
func TestOrders(t *testing.T) {
	w := newWorld(t)
	w.moving = true
	if m := w.do(w.order("b1", "")); m.Later == "" || m.Moment != "" {
		t.Errorf("a guest that moves: %+v", m)
	}
	w.moving = false
	if m := w.do(w.order("b1", "b0")); !strings.Contains(m.Full, "nothing recorded what changed on disk root since checkpoint b0") {
		t.Errorf("nothing was recorded: %+v", m)
	}
	if m := w.do(w.order("b2", "")); m.Busy != "b1" {
		t.Errorf("another backup: %+v", m)
	}
	w.do(launcherapi.BackupOrder{ID: "b2", End: true})
	if !w.k.Holds() {
		t.Error("the end of another backup ended this one")
	}
	w.k.GiveWay("the guest moves")
	if w.k.Holds() || w.held != 0 {
		t.Error("it does not give way")
	}
	for range 2 {
		if m := w.do(w.order("b1", "")); m.Broken != "the guest moves" {
			t.Errorf("it was given up: %+v", m)
		}
	}
	if m := w.do(launcherapi.BackupOrder{ID: "b1", End: true}); m.Broken != "the guest moves" {
		t.Errorf("the end of what was given up: %+v", m)
	}
	for name, o := range map[string]launcherapi.BackupOrder{"no name": {}, "no disks": {ID: "b3"}, "no such disk": {ID: "b3", Volumes: []string{"other"}},
		"no keys": {ID: "b3", Volumes: []string{"root"}}} {
		if _, err := w.k.Do(t.Context(), o); err == nil || w.k.Holds() || w.held != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m := w.do(w.order("b4", "")); m.Moment == "" {
		t.Errorf("the next one: %+v", m)
	}
}

// TestForgotten: a moment that nobody reads or asks for is given up, and the guest's disks are no longer kept still.
func TestForgotten(t *testing.T) {
	w := newWorld(t)
	w.idle(50 * time.Millisecond)
	w.do(w.order("b1", ""))
	for until := time.Now().Add(20 * time.Second); w.k.Holds(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it is held still")
		}
	}
	if m := w.do(w.order("b1", "")); !strings.Contains(m.Broken, "its disks were not read for 50ms") {
		t.Errorf("%+v", m)
	}
}

// TestStrangersDoNotRead: only the worker that the order is for reads the disks.
func TestStrangersDoNotRead(t *testing.T) {
	w := newWorld(t)
	m := w.do(w.order("b1", ""))
	other, err := pki.New("other", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		by   *pki.Authority
		name string
	}{"another authority": {other, launcherapi.BackupClient}, "another name": {w.ca, "somebody"}} {
		if r := w.worker(m, "b1", "", row.by, row.name); r.Outcome == task.Done || r.Read != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", m.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := c.Read(make([]byte, 8)); n > 0 || err == nil { // QEMU greets
		t.Error("QEMU talks to a stranger")
	}
	if r := w.worker(m, "b1", "", w.ca, launcherapi.BackupClient); r.Outcome != task.Done {
		t.Errorf("the worker itself: %+v", r)
	}
}
