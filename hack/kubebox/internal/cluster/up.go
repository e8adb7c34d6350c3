package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-vm/berth/hack/kubebox/internal/build"
	"github.com/berth-vm/berth/hack/kubebox/internal/host"
	"github.com/berth-vm/berth/hack/kubebox/internal/image"
	"github.com/berth-vm/berth/hack/kubebox/internal/machine"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/state"
)

// minFree is the free space that a cluster needs before images are loaded: images on three nodes, etcd, logs, and room for tests
// to fill volumes with.
const minFree = 8 << 30

// firstNodes are the nodes of a new cluster.
var firstNodes = []plan.Node{{Name: "node1", Index: 1}, {Name: "node2", Index: 2}, {Name: "node3", Index: 3}}

// Up brings the cluster to the state in which all its nodes are Ready: it starts a new one, starts again what is not running of an
// existing one, or does nothing. If it fails, nothing of what it started is left.
func (b *Box) Up(ctx context.Context) (err error) {
	lock, err := b.exclusive("up")
	if err != nil {
		return err
	}
	defer lock.Close()
	ms, other, err := b.machines()
	if err != nil {
		return err
	}
	if err := refuseOther(other); err != nil {
		return err
	}
	c, fresh, err := b.load()
	if err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	control, whole := running(ms, plan.ControlName)
	if !whole {
		// Nodes cannot be kept without the control machine: the network they are plugged into goes with it.
		if err := b.sweep(ctx, ms); err != nil {
			return err
		}
		ms, control = nil, machine.Running{}
	}
	defer func() {
		if err != nil && !whole {
			err = errors.Join(err, b.abandon(ctx, fresh))
		}
	}()
	if err := b.start(ctx, c, ms, control.PID); err != nil {
		return err
	}
	b.summarize(c)
	return nil
}

// load returns the cluster to bring up, and whether it is a new one.
func (b *Box) load() (c state.Cluster, fresh bool, err error) {
	c, err = state.Load(b.Layout.Dir)
	if errors.Is(err, state.ErrNone) {
		return state.NewCluster(firstNodes), true, nil
	}
	return c, false, err
}

// prepare makes sure that the machine can hold the cluster: space, addresses, packages, kernel, programs.
func (b *Box) prepare(ctx context.Context) error {
	if err := os.MkdirAll(b.Layout.Dir, 0o755); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	free, err := host.FreeBytes(b.Layout.Dir)
	if err != nil {
		return err
	}
	if free < minFree {
		return fmt.Errorf("only %.1f GiB are free at %s, and a cluster needs %d GiB: make room there or choose another place with --state",
			float64(free)/(1<<30), b.Layout.Dir, int64(minFree>>30))
	}
	if err := host.NetworkFree(); err != nil {
		return err
	}
	if missing := host.MissingPackages(); len(missing) > 0 {
		b.say("installing Debian packages: %v", missing)
		if err := b.install(ctx, missing); err != nil {
			return err
		}
	}
	if err := host.LoadModules(); err != nil {
		return err
	}
	if err := host.RaiseLimits(); err != nil {
		return err
	}
	for _, p := range []build.Program{build.CoreDNS, build.SnapshotController} {
		if err := build.Build(ctx, b.Source, p, b.Layout.Program(p.Name), b); err != nil {
			return err
		}
	}
	return nil
}

func (b *Box) install(ctx context.Context, packages []string) error {
	path := filepath.Join(b.Layout.Dir, "apt.log")
	log, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	defer log.Close()
	if err := host.InstallPackages(ctx, packages, log); err != nil {
		return fmt.Errorf("%w (see %s)", err, path)
	}
	return nil
}

// start starts what does not run yet and waits until it is ready.
func (b *Box) start(ctx context.Context, c state.Cluster, ms []machine.Running, control int) error {
	if err := b.write(c); err != nil {
		return err
	}
	if err := c.Save(b.Layout.Dir); err != nil {
		return err
	}
	if err := state.SetOwner(b.Layout.Dir); err != nil {
		return err
	}
	if control == 0 {
		if err := machine.Launch(plan.Control(), b.Layout, func(pid int) error { control = pid; return host.WireControl(pid) }); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if _, up := running(ms, n.Name); !up {
			if err := b.launchNode(control, n); err != nil {
				return err
			}
		}
	}
	b.say("waiting for the API server")
	if err := b.awaitAPIServer(ctx); err != nil {
		return err
	}
	b.say("waiting for %d nodes", len(c.Nodes))
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return b.applyManifests(ctx) })
	work.Go(func() error { return b.awaitNodes(ctx, c.Nodes) })
	return work.Wait()
}

func (b *Box) launchNode(control int, n plan.Node) error {
	m := plan.NodeMachine(n)
	// A node that was stopped leaves the cgroups of its pods. A kubelet looks for each of their containers, three seconds each,
	// before it says that its node is Ready.
	if err := host.RemoveCgroup(m.Cgroup); err != nil {
		return err
	}
	if err := host.MakeCgroup(m.Cgroup); err != nil {
		return err
	}
	return machine.Launch(m, b.Layout, func(pid int) error { return host.WireNode(control, pid, n) })
}

// abandon ends what a failed start left. The files of a new cluster go too, except its logs; an older cluster keeps its data.
func (b *Box) abandon(ctx context.Context, fresh bool) error {
	ms, _, err := b.machines()
	if err == nil {
		err = b.sweep(ctx, ms)
	}
	if err == nil && fresh {
		err = b.wipe("logs")
	}
	return err
}

// kept are the directories of the state directory that a new cluster can use again: they save minutes and hold nothing of a cluster.
var kept = []string{"bin"}

// wipe removes the cluster's files, except programs and what else is to be kept.
func (b *Box) wipe(keep ...string) error {
	entries, err := os.ReadDir(b.Layout.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list state directory: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(append(keep, kept...), e.Name()) {
			if err := os.RemoveAll(filepath.Join(b.Layout.Dir, e.Name())); err != nil {
				return fmt.Errorf("remove state: %w", err)
			}
		}
	}
	return nil
}

// pullImages makes a node fetch every image that was loaded into the cluster.
func (b *Box) pullImages(ctx context.Context, node machine.Running) error {
	store, err := image.Open(b.Layout.Images())
	if err != nil {
		return err
	}
	names, err := store.Names()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := image.Pull(ctx, node.Socket("/run/containerd/containerd.sock"), names); err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	return nil
}
