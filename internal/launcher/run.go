// Package launcher runs one virtual machine in the launcher's pod, without privilege: it waits until the machine's disks are filled, lets the
// packages below it prepare the disks and start the guest, starts what looks after the guest, and reports how the guest ended.
//
// It does not know the Kubernetes API: its orders are files that the kubelet mounts, and it reports by an HTTP answer, by its readiness and by the
// termination log.
package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/launcher/agent"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/containerimage"
	"github.com/berth-vm/berth/internal/launcher/disks"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/early"
	"github.com/berth-vm/berth/internal/launcher/fill"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/libvirtd"
	"github.com/berth-vm/berth/internal/launcher/move"
	"github.com/berth-vm/berth/internal/launcher/plug"
	"github.com/berth-vm/berth/internal/launcher/progress"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcher/requests"
	"github.com/berth-vm/berth/internal/launcher/watch"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Launcher runs one machine.
type Launcher struct {
	Host  domain.Host
	Guest io.Writer // gets what the guest writes to its serial port
	Log   *slog.Logger
	ready atomic.Pointer[requests.Server]
	// returns is the report about added and removed disks; nil before there is any.
	returns atomic.Pointer[launcherapi.Returns]
	// waits describes what the guest waits for; nil or empty while its disks answer.
	waits   atomic.Pointer[waitsFor]
	remotes *remote.Disks // its network disks
	disks   map[string]backing.Disk
	maker   *disks.Maker // of its disks
	// copies records the progress of the machine's copies; nil before they are made.
	copies atomic.Pointer[progress.Copies]
	moves  move.Source
	// servers has the addresses where the launcher has logged in, by volume; nil until it has logged in for all disks.
	servers atomic.Pointer[map[string][]string]
	// early lists the volumes that were still being filled when the guest was started: in libvirt they stay disks at a socket.
	early atomic.Pointer[[]string]
	// described is the guest's report about itself; nil before the first.
	described atomic.Pointer[agent.Description]
	// backedUp is true while the disks are held for a backup.
	backedUp atomic.Bool
	// condemned describes the disks that will not be completed; nil or empty if there are none.
	condemned atomic.Pointer[string]
}

// New returns a launcher whose guest uses what this pod has. guest gets what the guest writes to its serial port.
func New(guest io.Writer, log *slog.Logger) *Launcher {
	return &Launcher{Host: domain.Probe(), Guest: guest, Log: log}
}

// Ready reports whether the guest runs.
func (l *Launcher) Ready() bool { return l.ready.Load() != nil }

// waitsFor describes what a guest waits for, with the fault if there is a name for it.
type waitsFor struct {
	text  string
	cause launcherapi.Fault
}

func (l *Launcher) waiting() waitsFor {
	if w := l.waits.Load(); w != nil {
		return *w
	}
	return waitsFor{}
}

// Returns returns the launcher's status.
func (l *Launcher) Returns() launcherapi.Returns {
	said := launcherapi.Returns{}
	if r := l.returns.Load(); r != nil {
		said = *r
	}
	if p := l.copies.Load(); p != nil {
		said.Copies = p.Now()
	}
	if r := l.ready.Load(); r != nil {
		said.Paused = r.Pauser.Paused()
	}
	said.BackedUp = l.backedUp.Load()
	w := l.earlyText(l.waiting())
	if all := l.early.Load(); all != nil {
		said.Early = *all
	}
	said.Waits, said.Cause = w.text, w.cause
	said.Move = l.moves.Reported.Load()
	if at := l.servers.Load(); at != nil {
		said.Servers = *at
	}
	if d := l.described.Load(); d != nil {
		said.Agent, said.Targets, said.Access = d.System, d.Targets, d.Access
	}
	return said
}

// Run waits for the machine's disks, runs the machine until it ends or ctx does, and returns how it ended.
func (l *Launcher) Run(ctx context.Context) launcherapi.Report {
	for _, d := range []string{launcherapi.StateDir, launcherapi.OwnDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return refused(err)
		}
	}
	err := l.logIn(ctx, filepath.Join(launcherapi.TaskDir, launcherapi.TaskFile))
	var m launcherapi.Machine
	if err == nil {
		m, err = await(ctx, launcherapi.TaskDir)
	}
	if ctx.Err() != nil {
		return launcherapi.Report{End: launcherapi.Stopped, Detail: "stopped while it waited for its disks"}
	}
	if err != nil {
		return refused(err)
	}
	remotes, err := remote.New(m)
	if err != nil {
		return refused(err)
	}
	defer remotes.Close()
	if at := l.servers.Load(); at != nil {
		remotes.Servers = *at
	}
	l.remotes = remotes
	l.copies.Store(progress.New())
	virt := libvirtd.StartAside(ctx, launcherapi.StateDir, remotes.LibvirtConf())
	defer virt.Close()
	l.maker = disks.New(m, remotes, l.copies.Load(), l.Log)
	disks, err := l.maker.All(ctx)
	if ctx.Err() != nil {
		return launcherapi.Report{End: launcherapi.Stopped, Detail: "stopped while its disks were made"}
	}
	if err != nil {
		return refused(err)
	}
	l.disks = disks
	text, err := l.domain(m)
	if err != nil {
		return refused(err)
	}
	h, err := virt.Wait()
	if err != nil {
		return refused(err)
	}
	if err := remotes.AddSecrets(h); err != nil {
		return refused(err)
	}
	if m.Incoming != "" {
		return l.receive(ctx, h, m)
	}
	r := l.guest(ctx, h, m, text)
	if ran := func(b backing.Disk) bool { return b.Orders != "" }; slices.ContainsFunc(slices.Collect(maps.Values(disks)), ran) {
		said, _ := os.ReadFile(domain.EndedFile) // a file that cannot be read counts as no report
		r = containerimage.WithProgramEnd(r, said)
	}
	return r
}

// receive waits for a guest that moves here, and runs it to its end.
func (l *Launcher) receive(ctx context.Context, h *libvirtd.Daemon, m launcherapi.Machine) launcherapi.Report {
	g, a, err := move.Arrive(ctx, h, m, &l.moves.Reported)
	if err != nil {
		return refused(err)
	}
	if a.End != nil {
		return *a.End
	}
	defer a.Close()
	r := l.attend(ctx, g, func() error { return a.Run(g) })
	r.Came = true // the guest ran here, or was about to: it has ended at its source
	return r
}

// domain returns the machine with its disks as a libvirt document.
func (l *Launcher) domain(m launcherapi.Machine) (string, error) {
	domain, err := domain.New(m, l.disks, l.Host)
	if err != nil {
		return "", err
	}
	text, err := domain.Marshal()
	if err != nil {
		return "", fmt.Errorf("write the domain: %w", err)
	}
	return text, nil
}

func refused(err error) launcherapi.Report {
	r := launcherapi.Report{End: launcherapi.Refused, Detail: err.Error()}
	var f *remote.Error
	if errors.As(err, &f) {
		r.Fault = f.Fault
	}
	return r
}

// await returns the machine as soon as the go file says yes. The kubelet replaces both files in one step, so they belong together.
func await(ctx context.Context, dir string) (launcherapi.Machine, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(filepath.Join(dir, launcherapi.GoFile)); err == nil && strings.TrimSpace(string(b)) == "yes" {
			m, err := readMachine(filepath.Join(dir, launcherapi.TaskFile))
			said, _ := os.ReadFile(filepath.Join(dir, launcherapi.AgentFile)) // without the file the launcher waits for the agent
			m.NoAgent = strings.TrimSpace(string(said)) == launcherapi.NoAgent
			return m, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return launcherapi.Machine{}, ctx.Err()
		}
	}
}

func readMachine(path string) (launcherapi.Machine, error) {
	var m launcherapi.Machine
	b, err := os.ReadFile(path)
	if err != nil {
		return m, fmt.Errorf("read the machine: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("read the machine: %w", err)
	}
	m.Resolve()
	return m, nil
}

// guest runs a guest from its start to its end. It starts paused, so that nothing it writes to the serial port is lost.
func (l *Launcher) guest(ctx context.Context, h *libvirtd.Daemon, m launcherapi.Machine, xml string) launcherapi.Report {
	g, err := guest.Create(ctx, h, m, xml)
	if again, made := l.withOwnLayers(ctx, m, err); made != nil {
		return refused(made)
	} else if again != "" {
		g, err = guest.Create(ctx, h, m, again)
	}
	if err != nil {
		return refused(fmt.Errorf("libvirt refuses the machine: %w", remote.Classify(m, err)))
	}
	return l.attend(ctx, g, func() error {
		if g.Paused {
			return nil
		}
		return h.Virt.DomainResume(g.Domain)
	})
}

// attend starts the guest's processors with start, and looks after the guest until it ends.
func (l *Launcher) attend(ctx context.Context, g guest.Guest, start func() error) launcherapi.Report {
	m := g.Machine
	if ptr.Deref(m.Spec.Domain.Devices.AutoattachSerialConsole, true) {
		port, err := requests.DialSerial(ctx, domain.Serial, l.Guest)
		if err != nil {
			return refused(err)
		}
		if err := requests.ServeConsole(ctx, port); err != nil {
			return refused(err)
		}
	}
	if err := start(); err != nil {
		return refused(fmt.Errorf("start the guest: %w", err))
	}
	if err := requests.OpenPorts(g); err != nil {
		return refused(err)
	}
	l.Log.Info("the guest runs", "machine", m.Namespace+"/"+m.Name, "kvm", l.Host.KVM)
	ended := make(chan struct{})
	defer close(ended)
	qemu, err := qmp.Dial(ctx, qmp.Socket)
	if err != nil {
		return refused(err)
	}
	now := requests.New(g, qemu)
	held := l.newMoments(qemu, now)
	now.Backup = func(line string) (launcherapi.BackupMoment, error) { return backupMoment(held, line) }
	giveWay := func() { held.GiveWay("the guest moves to another node; back it up again when it is there") }
	if err := errors.Join(now.ServeQuiet(ended), now.ServeVerbs(ended)); err != nil {
		return refused(err)
	}
	err = plug.Start(g, plug.Needs{QEMU: qemu, Log: l.Log, Remotes: l.remotes, Disks: l.disks, Quiet: now.Freezer.During, Returns: &l.returns, Still: &l.moves.Still}, ended)
	if err != nil {
		return refused(err)
	}
	fill.Start(g, qemu, l.Log, l.copies.Load().Change, l.remotes.Release, ended)
	l.startEarly(qemu, now.Pauser, ended)
	defer context.AfterFunc(ctx, func() { now.Pauser.End() })() // a paused guest does not hear that it is told to shut down
	go agent.Watch(g, l.Log, l.described.Store, ended)
	l.ready.Store(now)
	defer l.ready.Store(nil)
	s := watch.New(now.Pauser.ResumeStopped, l.remotes, qemu)
	s.Say = func(text string, cause launcherapi.Fault) { l.waits.Store(&waitsFor{text, cause}) }
	s.Why = func() []string { return watch.FullDisks(qemu, l.disks) }
	s.Cut = func() []string { return early.WithoutSource(l.disks) }
	l.moves.Start(ctx, g, move.Needs{QEMU: qemu, Pauser: now.Pauser, Log: l.Log, Before: giveWay}, ended)
	return l.moves.HandOver(ctx, runToEnd(ctx, g, s, &l.moves))
}

// runToEnd waits until the guest ends, and looks after stalls meanwhile. When ctx ends it presses the guest's power button, and switches the guest
// off when the grace period is over.
func runToEnd(ctx context.Context, g guest.Guest, stalls *watch.Stalls, moves *move.Source) launcherapi.Report {
	h, dom, asked := g.Libvirt, g.Domain, false
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	done := ctx.Done()
	var plug <-chan time.Time
	for {
		select {
		case e, ok := <-g.Events:
			if !ok {
				return launcherapi.Report{End: launcherapi.Crashed, Detail: libvirtd.ErrEnded.Error()}
			}
			if libvirt.DomainEventType(e.Event) == libvirt.DomainEventStopped {
				return libvirtd.Ended(libvirt.DomainEventStoppedDetailType(e.Detail), asked)
			}
			moves.Heard(e, time.Now())
			stalls.Heard(e, time.Now())
		case now := <-tick.C:
			if !moves.Busy() { // libvirt refuses to touch a guest that it moves
				stalls.Look(now)
			}
		case <-done:
			asked, done, plug = true, nil, time.After(grace(g.Machine))
			_ = h.Virt.DomainShutdownFlags(dom, libvirt.DomainShutdownAcpiPowerBtn)
		case <-plug:
			_ = h.Virt.DomainDestroyFlags(dom, libvirt.DomainDestroyDefault)
		case <-h.Gone:
			return launcherapi.Report{End: launcherapi.Crashed, Detail: libvirtd.ErrEnded.Error()}
		}
	}
}

// grace is how long the guest may take to shut down.
func grace(m launcherapi.Machine) time.Duration {
	g := 30 * time.Second
	if s := m.Spec.TerminationGracePeriodSeconds; s != nil {
		g = time.Duration(*s) * time.Second
	}
	return g
}
