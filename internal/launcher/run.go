// Package launcher runs one virtual machine: it waits until the disks are filled, turns the machine into a libvirt domain (a
// pure function), starts it, gives it disks while it runs, and ends when the guest ends. It runs in the launcher pod,
// without privilege.
//
// It knows libvirt, QEMU and the files of its own pod. It does not know the Kubernetes API: what it is to run comes as
// files the kubelet mounts, and what became of it leaves as readiness, exit and last words.
package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/containerimage"
	"github.com/berth-vm/berth/internal/launcher/disks"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/early"
	"github.com/berth-vm/berth/internal/launcher/libvirtd"
	"github.com/berth-vm/berth/internal/launcher/moments"
	"github.com/berth-vm/berth/internal/launcher/progress"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Launcher runs one machine.
type Launcher struct {
	Host  domain.Host
	Guest io.Writer // what the guest says on its serial port
	Log   *slog.Logger
	ready atomic.Pointer[running]
	// returns is what became of the disks the guest was asked to give back.
	returns atomic.Pointer[launcherapi.Returns]
	// waits is what the guest waits for; nil or empty while its disks answer.
	waits   atomic.Pointer[waitsFor]
	remotes *remote.Disks // its network disks
	disks   map[string]backing.Disk
	maker   *disks.Maker // of its disks
	// copies is how far its copies are; nil before there are any.
	copies atomic.Pointer[progress.Copies]
	moves  moves
	// servers is where it has logged in, by volume; nil: not everywhere yet.
	servers atomic.Pointer[map[string][]string]
	// early are the volumes that the guest was started with before they were full: libvirt knows them as served ones.
	early atomic.Pointer[[]string]
	// described is what is known of the running guest; nil: nothing yet.
	described atomic.Pointer[description]
	// condemned is what there is to say of disks that will not be completed; nil or empty: nothing.
	condemned atomic.Pointer[string]
}

// New returns a launcher whose guest uses what this pod has. guest gets what the guest writes to its serial port.
func New(guest io.Writer, log *slog.Logger) *Launcher {
	return &Launcher{Host: domain.Probe(), Guest: guest, Log: log}
}

// running is a guest that runs.
type running struct {
	h        *libvirtd.Daemon
	dom      libvirt.Domain
	spec     kubevirt.VirtualMachineInstanceSpec
	pauser   *pauser
	quiet    *quiet
	card     string // QEMU's name of the network card that connections to the guest come through; empty: it has none
	forwards atomic.Int32
	screen   *screen
	moments  *moments.Keeper
}

func newRunning(g guestHere) *running {
	h, dom, m := g.h, g.dom, g.m
	r := &running{h: h, dom: dom, spec: m.Spec, pauser: &pauser{paused: g.paused,
		suspend: func() error { return h.Virt.DomainSuspend(dom) }, resume: func() error { return h.Virt.DomainResume(dom) }}}
	r.quiet = &quiet{ask: func(command string) error { return r.query(command, nil) }}
	if c := domain.Interfaces(m); len(c) > 0 {
		r.card = "host" + qmp.Device(c[0].Name)
	}
	return r
}

// Ready says whether the guest runs.
func (l *Launcher) Ready() bool { return l.ready.Load() != nil }

// waitsFor is what a guest waits for, and why if that has a name.
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

// Returns says what became of the disks the guest was asked to give back.
func (l *Launcher) Returns() launcherapi.Returns {
	said := launcherapi.Returns{}
	if r := l.returns.Load(); r != nil {
		said = *r
	}
	if p := l.copies.Load(); p != nil {
		said.Copies = p.Now()
	}
	if r := l.ready.Load(); r != nil {
		said.Paused = r.pauser.is()
	}
	w := l.earlyText(l.waiting())
	if all := l.early.Load(); all != nil {
		said.Early = *all
	}
	said.Waits, said.Cause = w.text, w.cause
	said.Move = l.moves.said.Load()
	if at := l.servers.Load(); at != nil {
		said.Servers = *at
	}
	if d := l.described.Load(); d != nil {
		said.Agent, said.Targets, said.Access = d.agent, d.targets, d.access
	}
	return said
}

// Run waits for the machine's disks, runs it until it ends or ctx does, and says how it ended.
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
		return l.arrive(ctx, h, m)
	}
	r := l.guest(ctx, h, m, text)
	if ran := func(b backing.Disk) bool { return b.Orders != "" }; slices.ContainsFunc(slices.Collect(maps.Values(disks)), ran) {
		said, _ := os.ReadFile(domain.EndedFile) // what cannot be read was not said
		r = containerimage.WithProgramEnd(r, said)
	}
	return r
}

// domain is the machine with its disks, as libvirt is told.
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

// await returns the machine as soon as the go file says yes. The kubelet replaces both files in one step, so what is
// read together belongs together.
func await(ctx context.Context, dir string) (launcherapi.Machine, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(filepath.Join(dir, launcherapi.GoFile)); err == nil && strings.TrimSpace(string(b)) == "yes" {
			m, err := readMachine(filepath.Join(dir, launcherapi.TaskFile))
			said, _ := os.ReadFile(filepath.Join(dir, launcherapi.AgentFile)) // a launcher that is not told waits for the agent
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

// guest creates the domain paused, so that nobody misses its first words, and runs it to its end.
func (l *Launcher) guest(ctx context.Context, h *libvirtd.Daemon, m launcherapi.Machine, xml string) launcherapi.Report {
	g, err := create(ctx, h, m, xml)
	if again, made := l.withOwnLayers(ctx, m, err); again != "" || made != nil {
		if err = made; err == nil {
			g, err = create(ctx, h, m, again)
		}
	}
	if err != nil {
		return refused(err)
	}
	return l.attend(ctx, g, func() error {
		if g.paused {
			return nil // it stands still already
		}
		return h.Virt.DomainResume(g.dom)
	})
}

// create has libvirt start the guest's QEMU, with its processors standing still.
func create(ctx context.Context, h *libvirtd.Daemon, m launcherapi.Machine, xml string) (guestHere, error) {
	events, err := h.Virt.LifecycleEvents(context.WithoutCancel(ctx))
	if err != nil {
		return guestHere{}, fmt.Errorf("listen to libvirt: %w", err)
	}
	dom, err := h.Virt.DomainCreateXML(xml, libvirt.DomainStartPaused)
	if err != nil {
		return guestHere{}, fmt.Errorf("libvirt refuses the machine: %w", remote.Classify(m, err))
	}
	return guestHere{h, dom, m, events, m.Spec.StartsPaused()}, nil
}

// guestHere is a guest that this launcher has, and that does not run yet.
type guestHere struct {
	h      *libvirtd.Daemon
	dom    libvirt.Domain
	m      launcherapi.Machine
	events <-chan libvirt.DomainEventLifecycleMsg
	paused bool // it begins with its processors standing still, until somebody lets it go on
}

// attend lets a guest run and sees to it until its end.
func (l *Launcher) attend(ctx context.Context, g guestHere, start func() error) launcherapi.Report {
	h, dom, m := g.h, g.dom, g.m
	if ptr.Deref(m.Spec.Domain.Devices.AutoattachSerialConsole, true) {
		port, err := dialSerial(ctx, domain.Serial, l.Guest)
		if err != nil {
			return refused(err)
		}
		if err := serveConsole(ctx, port); err != nil {
			return refused(err)
		}
	}
	if err := start(); err != nil {
		return refused(fmt.Errorf("start the guest: %w", err))
	}
	if err := forward(h, dom, m); err != nil {
		return refused(err)
	}
	l.Log.Info("the guest runs", "machine", m.Namespace+"/"+m.Name, "kvm", l.Host.KVM)
	ended := make(chan struct{})
	defer close(ended)
	qemu, err := qmp.Dial(ctx, qmp.Socket)
	if err != nil {
		return refused(err)
	}
	now := newRunning(g)
	now.screen = &screen{qemu: qemu, dir: launcherapi.StateDir}
	now.moments = l.newMoments(qemu, now)
	l.moves.before = func() { now.moments.GiveWay("the guest moves to another node; back it up again when it is there") }
	q := now.quiet
	if err := errors.Join(q.serve(ended), now.serveVerbs(ended)); err != nil {
		return refused(err)
	}
	if err := l.startPlugs(qemu, g, q, ended); err != nil {
		return refused(err)
	}
	l.startFills(h, dom, qemu, m, ended)
	l.startEarly(qemu, now.pauser, ended)
	defer context.AfterFunc(ctx, func() { now.pauser.end() })() // a guest that is paused would not hear that it is to stop
	l.startDescribing(now, ended)
	l.ready.Store(now)
	defer l.ready.Store(nil)
	s := newStalls(now.pauser.goOn, l.remotes, qemu)
	s.say = func(text string, cause launcherapi.Fault) { l.waits.Store(&waitsFor{text, cause}) }
	s.why = func() []string { return fullDisks(qemu, l.disks) }
	s.cut = func() []string { return early.WithoutSource(l.disks) }
	l.moves.pauser = now.pauser
	l.startMoves(ctx, g, qemu, ended)
	return l.moves.handOver(ctx, watch(ctx, g, s, &l.moves))
}

// forward opens the ports the machine lists.
func forward(h *libvirtd.Daemon, dom libvirt.Domain, m launcherapi.Machine) error {
	for _, line := range domain.Forwards(m) {
		if err := h.Tell(dom.Name, line); err != nil {
			return fmt.Errorf("forward a port: %w; is it taken, by another interface or by the launcher (%d)?", err, launcherapi.ReadyPort)
		}
	}
	return nil
}

// watch waits for the domain to stop. When ctx ends it presses the power button, and pulls the plug after the grace.
func watch(ctx context.Context, g guestHere, stalls *stalls, moves *moves) launcherapi.Report {
	h, dom, asked := g.h, g.dom, false
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	done := ctx.Done()
	var plug <-chan time.Time
	for {
		select {
		case e, ok := <-g.events:
			if !ok {
				return launcherapi.Report{End: launcherapi.Crashed, Detail: libvirtd.ErrEnded.Error()}
			}
			if libvirt.DomainEventType(e.Event) == libvirt.DomainEventStopped {
				return libvirtd.Ended(libvirt.DomainEventStoppedDetailType(e.Detail), asked)
			}
			moves.heard(e, time.Now())
			stalls.heard(e, time.Now())
		case now := <-tick.C:
			if !moves.busy() { // libvirt lets nobody touch a guest that it moves
				stalls.look(now)
			}
		case <-done:
			asked, done, plug = true, nil, time.After(grace(g.m))
			_ = h.Virt.DomainShutdownFlags(dom, libvirt.DomainShutdownAcpiPowerBtn)
		case <-plug:
			_ = h.Virt.DomainDestroyFlags(dom, libvirt.DomainDestroyDefault)
		case <-h.Gone:
			return launcherapi.Report{End: launcherapi.Crashed, Detail: libvirtd.ErrEnded.Error()}
		}
	}
}

// grace is how long the guest may take to shut down: what it was given, less what the launcher needs afterwards.
func grace(m launcherapi.Machine) time.Duration {
	g := 30 * time.Second
	if s := m.Spec.TerminationGracePeriodSeconds; s != nil {
		g = time.Duration(*s) * time.Second
	}
	return g
}

// serveConsole lets `launcher console` in this pod talk to the serial port.
func serveConsole(ctx context.Context, port *serial) error {
	_ = os.Remove(launcherapi.ConsoleSocket)
	l, err := net.Listen("unix", launcherapi.ConsoleSocket)
	if err != nil {
		return fmt.Errorf("serve the console: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go port.attach(ctx, conn)
		}
	}()
	return nil
}
