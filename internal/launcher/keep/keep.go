// Package keep writes the copy of a running guest's disk into a claim that a holder hands over.
//
// It does not know which disks are kept where; package plug follows the orders and calls it.
package keep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// Copies writes copies of the guest's disks into claims. QEMU mirrors a disk: from then on every write of the guest goes to both, so the copy is
// complete some time however much the guest writes, and an error of the claim is no error for the guest. One goroutine owns it.
type Copies struct {
	qemu  *qmp.Monitor
	log   *slog.Logger
	quiet func(do func()) bool        // calls do while the guest's filesystems are frozen, and returns whether they are
	All   map[string]*keeping         // by the name that a holder hands the claim over under
	Words map[string]launcherapi.Keep // what is reported, by claim
	Count int
}

// keeping is a claim that a copy is written into.
type keeping struct {
	order  launcherapi.KeepOrder
	holder *net.UnixConn
	File   *os.File // of the claim; nil if nothing more is written to it
	id     string   // of the job, and of the claim's block node
	set    int
	ending bool // the copy is complete, and the guest's writes no longer go there
	stop   bool // it is no longer ordered, or its holder is gone
	cancel bool // QEMU was told to cancel it
}

// New returns what writes copies of a guest's disks. quiet calls a function while the guest's filesystems are frozen.
func New(qemu *qmp.Monitor, log *slog.Logger, quiet func(do func()) bool) *Copies {
	return &Copies{qemu: qemu, log: log, quiet: quiet, All: map[string]*keeping{}, Words: map[string]launcherapi.Keep{}}
}

// Take begins to write to a claim that a holder hands over, unless an earlier job has to end first; it returns whether it has
// taken the claim. The holder of a claim that has its copy already gets the same answer.
func (s *Copies) Take(name string, order launcherapi.KeepOrder, o handover.Disk) bool {
	k := s.All[name]
	if o.Reader != nil {
		_ = o.Reader.Close() // the claim is only written to
	}
	switch {
	case k != nil && k.order != order:
		return false // follow ends it
	case k != nil && k.File != nil:
		k.stop = true // another holder may hand over another file, so the copy begins again
		return false
	case k != nil:
		_ = k.holder.Close()
		k.holder = o.Holder
		_ = o.File.Close()
	case s.Words[order.Claim].Over():
		s.All[name] = &keeping{order: order, holder: o.Holder}
		_ = o.File.Close()
	default:
		k = &keeping{order: order, holder: o.Holder, File: o.File}
		s.All[name] = k
		s.Words[order.Claim] = launcherapi.Keep{}
		if err := s.start(k, o.Offer); err != nil {
			s.over(k, err)
		}
	}
	_ = rendezvous.SendAnswer(o.Holder, rendezvous.Answer{Attached: true})
	return true
}

// start makes QEMU begin. If a step is refused, the steps before are undone.
func (s *Copies) start(k *keeping, o rendezvous.Offer) error {
	if o.ReadOnly || o.Login {
		return errors.New("the claim cannot be written to")
	}
	source, size, err := s.qemu.Disk(k.order.Volume)
	if err != nil {
		return err
	}
	if err := makeRoom(k.File, o.Device, size); err != nil {
		return err
	}
	s.Count++
	k.id, k.set = fmt.Sprintf("keep%d", s.Count), keepSets+s.Count
	set := map[string]int{"fdset-id": k.set}
	if _, err := s.qemu.RunWithFile("add-fd", set, k.File); err != nil {
		return err
	}
	if _, err := s.qemu.Run("blockdev-add", k.node(o.Device, size)); err != nil {
		_, _ = s.qemu.Run("remove-fd", set)
		return err
	}
	_, err = s.qemu.Run("blockdev-mirror", map[string]any{
		"job-id": k.id, "device": source, "target": k.id, "sync": "full", "copy-mode": "write-blocking",
		"on-source-error": "report", "on-target-error": "report", "auto-dismiss": false,
	})
	if err != nil {
		s.tidy(k)
		return err
	}
	s.log.Info("a copy is being kept", "volume", k.order.Volume, "bytes", size)
	return nil
}

// keepSets is the first number of QEMU's sets of file descriptors for claims; those of added disks have smaller numbers.
const keepSets = 1 << 20

// node describes the claim's block node to QEMU.
func (k *keeping) node(device bool, size int64) map[string]any {
	kind := map[bool]string{true: "host_device", false: "file"}[device]
	return map[string]any{
		"driver": "raw", "node-name": k.id, "size": size, "discard": "unmap", "detect-zeroes": "unmap",
		"file": map[string]any{"driver": kind, "filename": fmt.Sprintf("/dev/fdset/%d", k.set), "discard": "unmap"},
	}
}

// makeRoom makes an empty disk of that size, or returns an error if it does not fit. A device is not cleared: the copy overwrites all of it.
func makeRoom(f *os.File, device bool, size int64) error {
	if device {
		has, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return fmt.Errorf("measure the claim: %w", err)
		}
		if has < size {
			return fmt.Errorf("the claim is too small: it has %d bytes and the disk %d", has, size)
		}
		return nil
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("empty the claim: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return fmt.Errorf("measure the claim: %w", err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < size {
		return fmt.Errorf("the claim is too small: its filesystem has room for %d bytes and the disk has %d", free, size)
	}
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("make a disk in the claim: %w", err)
	}
	return nil
}

// Follow checks the state of QEMU's jobs, ends those that are no longer wanted, and releases their holders.
func (s *Copies) Follow(want map[string]launcherapi.KeepOrder) {
	for name, k := range s.All {
		k.stop = k.stop || want[name] != k.order
		if k.File != nil {
			if err := s.look(k); err != nil {
				s.log.Warn("no word of a copy that is being kept", "volume", k.order.Volume, "error", err.Error())
			}
		}
		if k.stop && k.File == nil {
			_ = rendezvous.SendAnswer(k.holder, rendezvous.Answer{Released: true})
			_ = k.holder.Close()
			delete(s.All, name)
		}
	}
}

// job is one of QEMU's.
type job struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Done   int64  `json:"current-progress"`
	Total  int64  `json:"total-progress"`
	Error  string `json:"error"`
}

func (s *Copies) job(id string) (job, error) {
	answer, err := s.qemu.Run("query-jobs", nil)
	if err != nil {
		return job{}, err
	}
	var all []job
	if err := json.Unmarshal(answer, &all); err != nil {
		return job{}, fmt.Errorf("read QEMU's list of jobs: %w", err)
	}
	for _, j := range all {
		if j.ID == id {
			return j, nil
		}
	}
	return job{}, fmt.Errorf("QEMU has no job %s", id)
}

// look records the progress of a job. If the holder is gone, the claim may soon be another pod's, so the job is ended.
func (s *Copies) look(k *keeping) error {
	j, err := s.job(k.id)
	if err != nil {
		return err
	}
	if j.Status == "concluded" {
		s.concluded(k, j)
		return nil
	}
	if rendezvous.SendAnswer(k.holder, rendezvous.Answer{Attached: true}) != nil {
		k.stop = true
	}
	s.Words[k.order.Claim] = launcherapi.Keep{Done: j.Done, Total: j.Total}
	switch {
	case k.ending || k.cancel:
	case k.stop:
		if _, err := s.qemu.Run("job-cancel", map[string]string{"id": k.id}); err != nil {
			return err
		}
		k.cancel = true
	case j.Status == "ready":
		return s.finish(k)
	}
	return nil
}

// endsWithin is how long the filesystems may stay frozen until a job that has copied everything ends.
const endsWithin = 5 * time.Second

// finish ends a job that has copied everything, while the filesystems are frozen if the guest has an agent: the claim then has the
// disk of that moment. A mirror that is ready counts as completed for QEMU when it is cancelled by this command.
func (s *Copies) finish(k *keeping) error {
	var last job
	var err error
	held := s.quiet(func() {
		if _, err = s.qemu.Run("block-job-cancel", map[string]string{"device": k.id}); err != nil {
			return
		}
		k.ending = true
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for until := time.Now().Add(endsWithin); time.Now().Before(until); <-tick.C {
			if last, err = s.job(k.id); err != nil || last.Status == "concluded" {
				return
			}
		}
	})
	if err != nil || last.Status != "concluded" {
		return err
	}
	s.concluded(k, last)
	if w := s.Words[k.order.Claim]; w.Written {
		w.Quiet = held
		s.Words[k.order.Claim] = w
	}
	return nil
}

// concluded handles the end of a job, whether it succeeded or not. The copy counts when the data is on the medium.
func (s *Copies) concluded(k *keeping, j job) {
	_, _ = s.qemu.Run("job-dismiss", map[string]string{"id": k.id})
	s.tidy(k)
	if k.cancel {
		_ = k.File.Close()
		k.File = nil
		delete(s.Words, k.order.Claim)
		return
	}
	var err error
	switch {
	case j.Error != "":
		err = errors.New(j.Error)
	case !k.ending:
		err = errors.New("QEMU ended it before everything was written")
	default:
		err = k.File.Sync()
	}
	s.over(k, err)
}

// tidy makes QEMU close the claim, after it has written all data.
func (s *Copies) tidy(k *keeping) {
	_, err := s.qemu.Run("blockdev-del", map[string]string{"node-name": k.id})
	if err == nil {
		_, err = s.qemu.Run("remove-fd", map[string]int{"fdset-id": k.set})
	}
	if err != nil {
		s.log.Warn("QEMU has not closed a claim", "volume", k.order.Volume, "error", err.Error())
	}
}

// over reports how the copy ended. The holder stays until the order is withdrawn.
func (s *Copies) over(k *keeping, err error) {
	size := int64(0)
	if info, statErr := k.File.Stat(); statErr == nil {
		size = info.Size()
	}
	_ = k.File.Close()
	k.File = nil
	if err != nil {
		s.Words[k.order.Claim] = launcherapi.Keep{Failed: launcherapi.Shorten(err.Error())}
		s.log.Error("a copy was not kept", "volume", k.order.Volume, "error", err.Error())
		return
	}
	w := s.Words[k.order.Claim]
	total := max(w.Total, size)
	s.Words[k.order.Claim] = launcherapi.Keep{Done: total, Total: total, Written: true}
	s.log.Info("a copy was kept", "volume", k.order.Volume)
}
