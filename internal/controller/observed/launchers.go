package observed

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// observeLaunchers finds the launcher that has the guest, or is to start it, and the others.
func (r *Reader) observeLaunchers(ctx context.Context, s *Instance) error {
	all, err := launcherpod.Of(ctx, cluster.Reads(r.Cached), s.Object)
	if err != nil {
		return err
	}
	s.Launcher = launcherpod.Present(all)
	s.Others = slices.DeleteFunc(all, func(p *corev1.Pod) bool { return p == s.Launcher })
	return nil
}

// Arrives reports whether the launcher is one that the guest came to. No other target is ever the instance's launcher.
func (s *Instance) Arrives() bool { return launcherpod.Incoming(s.Launcher) != "" }

// otherLaunchers returns the state of the launchers that do not have the guest.
func (s *Instance) otherLaunchers() machine.Pod {
	switch {
	case len(s.Others) == 0:
		return machine.NoPod
	case slices.ContainsFunc(s.Others, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }):
		return machine.Placed
	}
	return machine.Going
}
