package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// keeps writes copies of the guest's disks into claims while the guest runs. QEMU mirrors the disk: every write of the guest goes
// to both from then on, so it comes to an end however much the guest writes, and an error of the claim is none of the guest's.
// The owner of plugs owns it too.
type keeps struct {
	qemu  *qmp.Monitor
	log   *slog.Logger
	quiet func(do func()) bool // does something while the guest is held still, and says whether it was
	all   map[string]*keeping  // by the volume that a holder hands over
	words map[string]launcherapi.Keep
	count int
}

// keeping is a claim that a copy is kept in.
type keeping struct {
	order  launcherapi.KeepOrder
	holder *net.UnixConn
	file   *os.File // of the claim; nil: nothing more is written to it
	id     string   // of the job, and of the claim's block node
	set    int
	ending bool // the guest's writes no longer go there
	stop   bool // nobody wants it any more, or its holder is gone
	cancel bool // QEMU was told so
}

func newKeeps(qemu *qmp.Monitor, log *slog.Logger, quiet func(do func()) bool) *keeps {
	return &keeps{qemu: qemu, log: log, quiet: quiet, all: map[string]*keeping{}, words: map[string]launcherapi.Keep{}}
}

// keep follows the orders for claims that copies are kept in, and leaves word of them.
func (p *plugs) keep(want map[string]launcherapi.KeepOrder, said *launcherapi.Returns) {
	if p.keeps == nil {
		return
	}
	for name, order := range want {
		if o, ok := p.offer[name]; ok && p.keeps.take(name, order, o) {
			delete(p.offer, name)
		}
	}
	p.keeps.follow(want)
	if len(p.keeps.words) > 0 {
		said.Keeps = maps.Clone(p.keeps.words)
	}
	for name, k := range p.keeps.all {
		if k.file != nil {
			said.Has = append(said.Has, name)
		}
	}
}

// take begins with a claim that is handed over, unless something has to end first. One that is over needs no other holder than
// to be told so.
func (s *keeps) take(name string, order launcherapi.KeepOrder, o offer) bool {
	k := s.all[name]
	if o.reader != nil {
		_ = o.reader.Close() // it is written to, and nothing else
	}
	switch {
	case k != nil && k.order != order:
		return false // follow ends it
	case k != nil && k.file != nil:
		k.stop = true // another holder may have another file: it is begun again
		return false
	case k != nil:
		_ = k.holder.Close()
		k.holder = o.holder
		_ = o.file.Close()
	case s.words[order.Claim].Over():
		s.all[name] = &keeping{order: order, holder: o.holder}
		_ = o.file.Close()
	default:
		k = &keeping{order: order, holder: o.holder, file: o.file}
		s.all[name] = k
		s.words[order.Claim] = launcherapi.Keep{}
		if err := s.start(k, o.Offer); err != nil {
			s.over(k, err)
		}
	}
	_ = rendezvous.SendAnswer(o.holder, rendezvous.Answer{Attached: true})
	return true
}

// start has QEMU begin. What was done is undone if the next step is refused.
func (s *keeps) start(k *keeping, o rendezvous.Offer) error {
	if o.ReadOnly || o.Login {
		return errors.New("the claim cannot be written to")
	}
	source, size, err := s.qemu.Disk(k.order.Volume)
	if err != nil {
		return err
	}
	if err := makeRoom(k.file, o.Device, size); err != nil {
		return err
	}
	s.count++
	k.id, k.set = fmt.Sprintf("keep%d", s.count), keepSets+s.count
	set := map[string]int{"fdset-id": k.set}
	if _, err := s.qemu.RunWithFile("add-fd", set, k.file); err != nil {
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

// keepSets is where the numbers of our sets of files begin; those of added disks are counted from 1.
const keepSets = 1 << 20

func (k *keeping) node(device bool, size int64) map[string]any {
	kind := map[bool]string{true: "host_device", false: "file"}[device]
	return map[string]any{
		"driver": "raw", "node-name": k.id, "size": size, "discard": "unmap", "detect-zeroes": "unmap",
		"file": map[string]any{"driver": kind, "filename": fmt.Sprintf("/dev/fdset/%d", k.set), "discard": "unmap"},
	}
}

// makeRoom makes an empty disk of that size, or says that it does not fit. A device is not emptied: all of it is written.
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

// follow looks at what QEMU does, ends what nobody wants any more, and lets its holders go.
func (s *keeps) follow(want map[string]launcherapi.KeepOrder) {
	for name, k := range s.all {
		k.stop = k.stop || want[name] != k.order
		if k.file != nil {
			if err := s.look(k); err != nil {
				s.log.Warn("no word of a copy that is being kept", "volume", k.order.Volume, "error", err.Error())
			}
		}
		if k.stop && k.file == nil {
			_ = rendezvous.SendAnswer(k.holder, rendezvous.Answer{Released: true})
			_ = k.holder.Close()
			delete(s.all, name)
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

func (s *keeps) job(id string) (job, error) {
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

// look sees how far QEMU is. A claim without its holder may be somebody else's in a moment, so its job is ended.
func (s *keeps) look(k *keeping) error {
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
	s.words[k.order.Claim] = launcherapi.Keep{Done: j.Done, Total: j.Total}
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

// endsWithin is how long the guest may be held for the end of a job that has everything.
const endsWithin = 5 * time.Second

// finish ends a job that has everything, while the guest is held still if it has an agent. What is in the claim is the disk of
// that moment. Cancelled by this command, and in this state, QEMU calls it completed.
func (s *keeps) finish(k *keeping) error {
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
	if w := s.words[k.order.Claim]; w.Written {
		w.Quiet = held
		s.words[k.order.Claim] = w
	}
	return nil
}

// concluded is the end of a job, good or bad. The data counts when the medium has it.
func (s *keeps) concluded(k *keeping, j job) {
	_, _ = s.qemu.Run("job-dismiss", map[string]string{"id": k.id})
	s.tidy(k)
	if k.cancel {
		_ = k.file.Close()
		k.file = nil
		delete(s.words, k.order.Claim)
		return
	}
	var err error
	switch {
	case j.Error != "":
		err = errors.New(j.Error)
	case !k.ending:
		err = errors.New("QEMU ended it before everything was written")
	default:
		err = k.file.Sync()
	}
	s.over(k, err)
}

// tidy takes the claim from QEMU, which writes what it still has.
func (s *keeps) tidy(k *keeping) {
	_, err := s.qemu.Run("blockdev-del", map[string]string{"node-name": k.id})
	if err == nil {
		_, err = s.qemu.Run("remove-fd", map[string]int{"fdset-id": k.set})
	}
	if err != nil {
		s.log.Warn("QEMU has not quite let go of a claim", "volume", k.order.Volume, "error", err.Error())
	}
}

// over leaves the last word of a claim. Its holder stays until nobody wants it any more.
func (s *keeps) over(k *keeping, err error) {
	size := int64(0)
	if info, statErr := k.file.Stat(); statErr == nil {
		size = info.Size()
	}
	_ = k.file.Close()
	k.file = nil
	if err != nil {
		s.words[k.order.Claim] = launcherapi.Keep{Failed: cut(err.Error())}
		s.log.Error("a copy was not kept", "volume", k.order.Volume, "error", err.Error())
		return
	}
	w := s.words[k.order.Claim]
	total := max(w.Total, size)
	s.words[k.order.Claim] = launcherapi.Keep{Done: total, Total: total, Written: true}
	s.log.Info("a copy was kept", "volume", k.order.Volume)
}
