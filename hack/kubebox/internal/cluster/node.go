package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-vm/berth/hack/kubebox/internal/host"
	"github.com/berth-vm/berth/hack/kubebox/internal/machine"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/state"
)

// A session is a cluster that runs and that this command alone changes.
type session struct {
	*Box
	cluster  state.Cluster
	machines []machine.Running
	control  int
}

// change calls what with the running cluster, and saves the cluster afterwards.
func (b *Box) change(command string, what func(*session) error) error {
	lock, err := b.exclusive(command)
	if err != nil {
		return err
	}
	defer lock.Close()
	c, err := state.Load(b.Layout.Dir)
	if err != nil {
		return err
	}
	ms, _, err := b.machines()
	if err != nil {
		return err
	}
	control, up := running(ms, plan.ControlName)
	if !up {
		return errors.New("the cluster does not run: run `kubebox up`")
	}
	s := &session{Box: b, cluster: c, machines: ms, control: control.PID}
	if err := what(s); err != nil {
		return err
	}
	return s.cluster.Save(b.Layout.Dir)
}

// node returns a node and its machine; up is false if that does not run.
func (s *session) node(name string) (n plan.Node, m machine.Running, up bool, err error) {
	n, err = s.cluster.Node(name)
	m, up = running(s.machines, name)
	return n, m, up, err
}

func (s *session) heal(name string) {
	s.cluster.Cut = slices.DeleteFunc(s.cluster.Cut, func(c string) bool { return c == name })
}

// StopNode ends a node as a power cut would: every process of it is gone at once, its disks keep what was written.
func (b *Box) StopNode(ctx context.Context, name string) error {
	return b.change("node stop "+name, func(s *session) error {
		_, m, up, err := s.node(name)
		if err != nil {
			return err
		}
		if !up {
			s.say("node %s is stopped already", name)
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := m.Kill(ctx); err != nil {
			return err
		}
		// No power cut leaves a loop device, and those that only the node's kubelet knew would never be freed.
		if err := host.AwaitNoLoops(ctx, s.Layout.Node(name)); err != nil {
			return err
		}
		s.heal(name) // a node that is started again is plugged in
		s.say("stopped node %s; the cluster notices within 40 s", name)
		return nil
	})
}

// StartNode starts a node that was stopped, or plugs one in that was cut off, and waits until it is Ready.
func (b *Box) StartNode(ctx context.Context, name string) error {
	return b.change("node start "+name, func(s *session) error {
		n, _, up, err := s.node(name)
		if err != nil {
			return err
		}
		if up {
			err = host.SetPort(s.control, n, true)
		} else {
			err = s.launchNode(s.control, n)
		}
		if err != nil {
			return err
		}
		s.heal(name)
		if err := s.awaitNodes(ctx, []plan.Node{n}); err != nil {
			return err
		}
		s.say("node %s is Ready", name)
		return nil
	})
}

// CutNode unplugs a node: it goes on running, and nothing reaches it or is reached by it.
func (b *Box) CutNode(_ context.Context, name string) error {
	return b.change("node cut "+name, func(s *session) error {
		n, _, up, err := s.node(name)
		if err != nil {
			return err
		}
		if !up {
			return fmt.Errorf("node %s is stopped: only a running node can be cut off", name)
		}
		if err := host.SetPort(s.control, n, false); err != nil {
			return err
		}
		s.heal(name)
		s.cluster.Cut = append(s.cluster.Cut, name)
		s.say("cut node %s off; `kubebox node start %s` heals it", name, name)
		return nil
	})
}

// KillComponent kills a component ("node1/kubelet") as a crash would. Its machine starts it again within seconds.
func (b *Box) KillComponent(_ context.Context, name string) error {
	on, component, found := strings.Cut(name, "/")
	if !found || on == "" || component == "" {
		return fmt.Errorf("%q names no component: say `kubebox kill MACHINE/COMPONENT`, as in control/kube-apiserver", name)
	}
	return b.change("kill "+name, func(s *session) error {
		m, up := running(s.machines, on)
		if !up {
			return fmt.Errorf("machine %s does not run: `kubebox status` lists those that do", on)
		}
		components, err := machine.ReadStatus(b.Layout, on)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(components, func(c machine.Status) bool { return c.Component == component })
		if i < 0 {
			return fmt.Errorf("machine %s has no component %s: `kubebox status` lists them", on, component)
		}
		if components[i].PID == 0 {
			s.say("%s does not run at the moment", name)
			return nil
		}
		if err := m.KillProcess(components[i].PID); err != nil {
			return err
		}
		s.say("killed %s; it is started again within seconds", name)
		return nil
	})
}

// JoinNode adds a new node to the cluster and waits until it is Ready.
func (b *Box) JoinNode(ctx context.Context, name string) error {
	return b.change("node join "+name, func(s *session) error {
		n, err := plan.NewNode(name, s.cluster.Nodes)
		if err != nil {
			return err
		}
		s.cluster.Nodes = append(s.cluster.Nodes, n)
		if err := s.write(s.cluster); err != nil {
			return err
		}
		if err := s.launchNode(s.control, n); err != nil {
			return err
		}
		if err := s.awaitNodes(ctx, []plan.Node{n}); err != nil {
			return err
		}
		s.say("node %s is Ready", name)
		return nil
	})
}
