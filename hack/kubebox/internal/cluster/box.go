// Package cluster implements the commands: it brings a cluster up, takes it down, reports its state, and stops, starts, cuts and
// joins nodes. What a cluster consists of is package plan's; how the machine is changed is package host's.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-vm/berth/hack/kubebox/internal/host"
	"github.com/berth-vm/berth/hack/kubebox/internal/machine"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/state"
)

// A Box is the cluster of one checkout.
type Box struct {
	Layout plan.Layout
	// Source is the directory hack/kubebox, from which the extra programs are built.
	Source string
	Out    io.Writer

	began time.Time
}

// New returns the cluster with that state directory.
func New(stateDir, source string, out io.Writer) *Box {
	return &Box{Layout: plan.Layout{Dir: stateDir}, Source: source, Out: out, began: time.Now()}
}

// say prints a line of progress with the time since the command began.
func (b *Box) say(format string, args ...any) {
	fmt.Fprintf(b.Out, "%5.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// Write makes the box a writer of progress lines, for programs that report theirs.
func (b *Box) Write(p []byte) (int, error) {
	fmt.Fprintf(b.Out, "%5.1fs  %s", time.Since(b.began).Seconds(), p)
	return len(p), nil
}

// exclusive checks that this command may change the machine, and keeps others from doing so until the returned file is closed.
func (b *Box) exclusive(command string) (io.Closer, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("making namespaces and mounts takes root: run `sudo %s %s`", os.Args[0], command)
	}
	return state.Lock(func() { b.say("waiting for another kubebox command to end") })
}

// machines returns those of this cluster's machines that run, and the state directory of another cluster if that runs instead.
func (b *Box) machines() (ours []machine.Running, other string, err error) {
	all, err := machine.Find()
	for _, r := range all {
		if r.StateDir == b.Layout.Dir {
			ours = append(ours, r)
		} else {
			other = r.StateDir
		}
	}
	return ours, other, err
}

func running(ms []machine.Running, name string) (machine.Running, bool) {
	i := slices.IndexFunc(ms, func(r machine.Running) bool { return r.Name == name })
	if i < 0 {
		return machine.Running{}, false
	}
	return ms[i], true
}

// refuseOther returns an error if the cluster of another checkout runs: addresses and cgroups exist only once on a machine.
func refuseOther(other string) error {
	if other == "" {
		return nil
	}
	return fmt.Errorf("the cluster of %s runs on this machine, which can hold only one: end it with `%s --state %s down`",
		filepath.Dir(other), os.Args[0], other)
}

// sweep ends those machines and removes everything from the machine that is not in a file: loop devices, cgroups, the network link.
// It also removes what a cluster left whose processes were killed, of this checkout or of the one that was last here.
func (b *Box) sweep(ctx context.Context, ms []machine.Running) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	owner, err := state.Owner()
	if err != nil {
		return err
	}
	var failed []error
	for _, m := range ms {
		failed = append(failed, m.Kill(ctx))
	}
	dirs := []string{b.Layout.Dir}
	if owner != "" && owner != b.Layout.Dir {
		dirs = append(dirs, owner)
	}
	for _, dir := range dirs {
		freed, err := host.ReleaseLoops(dir)
		if freed > 0 && len(ms) == 0 {
			b.say("freed %d loop devices that an earlier cluster of %s left", freed, filepath.Dir(dir))
		}
		failed = append(failed, err)
	}
	failed = append(failed, host.RemoveCgroup(plan.CgroupRoot), host.Unplug())
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return state.SetOwner("")
}

// client talks to the cluster's API server as its administrator.
func (b *Box) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", b.Layout.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.Timeout = 10 * time.Second
	config.QPS, config.Burst = 50, 100
	return kubernetes.NewForConfig(config)
}
