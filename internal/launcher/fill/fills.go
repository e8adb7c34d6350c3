// Package fill completes copies on read: while the guest is idle, it brings the rest of a master into the copy, which then no longer needs the
// master.
package fill

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// fills completes the copies of a machine, one after the other. When a copy has everything, QEMU closes its master. One goroutine owns it.
type fills struct {
	job   filler
	log   *slog.Logger
	queue []string // volumes that still need their masters
	note  func(volume string, change func(*launcherapi.Copy))
	done  func(volume string) // called when a master is no longer needed

	runs   bool      // a job has been started
	held   bool      // it is paused because the guest is busy
	ops    int64     // operations that the guest had done at the last look
	idle   time.Time // since when the guest is idle; zero if it is busy
	failed time.Time // when a job ended before the copy was complete
}

// filler runs jobs in libvirt and QEMU.
type filler interface {
	// start starts the job for a copy.
	start(volume string) error
	// look returns the progress of the job; found is false if there is no job.
	look(volume string) (found bool, done, total int64, err error)
	// alone reports whether the copy has no master any more.
	alone(volume string) (bool, error)
	// hold pauses the job or resumes it.
	hold(pause bool) error
	// operations returns how many reads and writes the guest has done so far.
	operations() (int64, error)
}

// The limits of a job: the bytes it copies a second, the number of operations a second that make a guest busy, and how long a guest must have
// done less to count as idle.
const (
	fillRate   = 64 << 20
	busyFrom   = 20
	idleFor    = 2 * time.Second
	fillsAgain = 10 * time.Second
)

// look is called every second.
func (f *fills) look(now time.Time) {
	if len(f.queue) == 0 {
		return
	}
	if err := f.step(f.queue[0], now); err != nil {
		f.log.Warn("a copy is not being filled", "volume", f.queue[0], "error", err.Error())
	}
}

// step looks after the copy of one volume.
func (f *fills) step(volume string, now time.Time) error {
	ops, err := f.job.operations()
	if err != nil {
		return err
	}
	busy := ops-f.ops > busyFrom
	f.ops = ops
	switch {
	case busy:
		f.idle = time.Time{}
	case f.idle.IsZero():
		f.idle = now
	}
	rest := f.idle.IsZero() || now.Sub(f.idle) < idleFor
	found, done, total, err := f.job.look(volume)
	if err != nil {
		return err
	}
	if found {
		f.runs = true
		f.note(volume, func(c *launcherapi.Copy) { c.Done, c.Total = done, max(total, c.Total) })
		return f.pace(rest)
	}
	return f.ended(volume, now, rest)
}

// pace pauses the job while the guest is busy.
func (f *fills) pace(rest bool) error {
	if rest == f.held {
		return nil
	}
	if err := f.job.hold(rest); err != nil {
		return err
	}
	f.held = rest
	return nil
}

// ended handles that there is no job: the copy is complete, the job has failed, or none was started yet.
func (f *fills) ended(volume string, now time.Time, rest bool) error {
	f.held = false
	alone, err := f.job.alone(volume)
	switch {
	case err != nil:
		return err
	case alone:
		f.runs, f.queue = false, f.queue[1:]
		f.note(volume, (*launcherapi.Copy).Complete)
		f.done(volume)
		f.log.Info("a copy is complete and no longer needs its master", "volume", volume)
		return nil
	case f.runs:
		f.runs, f.failed = false, now
		return fmt.Errorf("it ended without having everything; it is tried again in %s", fillsAgain)
	case rest || now.Sub(f.failed) < fillsAgain:
		return nil
	}
	return f.job.start(volume)
}

// pulls runs jobs for a guest.
type pulls struct {
	g    guest.Guest
	qemu *qmp.Monitor
}

func (p *pulls) start(volume string) error {
	if err := p.g.Libvirt.Virt.DomainBlockPull(p.g.Domain, backing.CopyFile(volume), fillRate, libvirt.DomainBlockPullBandwidthBytes); err != nil {
		return fmt.Errorf("begin to fill the copy: %w", err)
	}
	return nil
}

func (p *pulls) look(volume string) (bool, int64, int64, error) {
	found, _, _, done, total, err := p.g.Libvirt.Virt.DomainGetBlockJobInfo(p.g.Domain, backing.CopyFile(volume), 0)
	if err != nil {
		return false, 0, 0, fmt.Errorf("ask how far the copy is: %w", err)
	}
	return found == 1, int64(done), int64(total), nil
}

func (p *pulls) alone(volume string) (bool, error) {
	text, err := p.g.Libvirt.Virt.DomainGetXMLDesc(p.g.Domain, 0)
	if err != nil {
		return false, fmt.Errorf("ask for the domain: %w", err)
	}
	return aloneIn(text, backing.CopyFile(volume))
}

// aloneIn reports whether a domain says that a file has no master, by a backingStore without a format. If libvirt does not know, there is no
// backingStore.
func aloneIn(text, file string) (bool, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return false, fmt.Errorf("read the domain: %w", err)
	}
	at := slices.IndexFunc(d.Devices.Disks, func(x libvirtxml.DomainDisk) bool {
		return x.Source != nil && x.Source.File != nil && x.Source.File.File == file
	})
	if at < 0 {
		return false, fmt.Errorf("the domain has no disk %s", file)
	}
	under := d.Devices.Disks[at].BackingStore
	return under != nil && under.Format == nil, nil
}

func (p *pulls) hold(pause bool) error {
	answer, err := p.qemu.Run("query-block-jobs", nil)
	if err != nil {
		return err
	}
	var jobs []struct{ Device, Type string }
	if err := json.Unmarshal(answer, &jobs); err != nil {
		return fmt.Errorf("read QEMU's list of jobs: %w", err)
	}
	verb := "block-job-resume"
	if pause {
		verb = "block-job-pause"
	}
	for _, j := range jobs {
		if j.Type == "stream" && strings.HasPrefix(j.Device, "pull-") {
			if _, err := p.qemu.Run(verb, map[string]string{"device": j.Device}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pulls) operations() (int64, error) {
	answer, err := p.qemu.Run("query-blockstats", nil)
	if err != nil {
		return 0, err
	}
	var drives []struct {
		Stats struct {
			Reads  int64 `json:"rd_operations"`
			Writes int64 `json:"wr_operations"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(answer, &drives); err != nil {
		return 0, fmt.Errorf("read QEMU's statistics: %w", err)
	}
	sum := int64(0)
	for _, d := range drives {
		sum += d.Stats.Reads + d.Stats.Writes
	}
	return sum, nil
}

// Start fills the copies on read of a guest until it ends. note changes what is reported of a copy; done is called for a volume whose master
// is no longer needed.
func Start(g guest.Guest, qemu *qmp.Monitor, log *slog.Logger, note func(string, func(*launcherapi.Copy)), done func(string), ended <-chan struct{}) {
	f := &fills{job: &pulls{g, qemu}, log: log, note: note, done: done}
	for _, v := range g.Machine.Spec.Volumes {
		if c := v.Copied(); c != nil && c.Mode == kubevirt.CopyOnRead {
			f.queue = append(f.queue, v.Name)
		}
	}
	if len(f.queue) == 0 {
		return
	}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				f.look(now)
			case <-ended:
				return
			}
		}
	}()
}
