package observed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// Asker says what a launcher said last of the disks its guest was asked to give back, and asks it again.
type Asker func(launcher *corev1.Pod) (launcherapi.Returns, error)

// Returns asks the launcher about the disks that its guest is to give back, if there are any. A launcher that does
// not answer is asked again.
func (r *Reader) Returns(ctx context.Context, s *Instance) error {
	s.Removed = s.removedVolumes()
	if err := r.observeSurplus(ctx, s); err != nil {
		return err
	}
	waits := len(s.Removed) > 0 || len(s.Surplus) > 0 || slices.ContainsFunc(s.Added, (*Added).Awaited)
	if !waits || !cluster.OwnedBy(s.Launcher, s.Object.UID) {
		return nil
	}
	var err error
	s.Returns, err = r.Ask(s.Launcher)
	s.Asked = errors.Is(err, probe.ErrNoAnswerYet)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of disks to be given back", "launcher", s.Launcher.Name, "error", err.Error())
	}
	s.Answered = err == nil
	return nil
}

// observeSurplus finds the disks that the launcher has a record of and that are no volume of the machine any more: they were added
// and removed. It finds nothing as long as one of its volumes cannot be resolved.
func (r *Reader) observeSurplus(ctx context.Context, s *Instance) error {
	var records accessv1.DiskAccessList
	if err := r.Cached.List(ctx, &records, client.HasLabels{diskaccess.HolderLabel(s.Launcher.UID)}); err != nil {
		return fmt.Errorf("list the disks of the launcher: %w", err)
	}
	s.Wanted = map[string]bool{}
	for _, h := range s.Added {
		if !h.Wanted || h.State != machine.Ready {
			return nil
		}
		s.Wanted[h.ID.Name()] = true
		if h.PV != nil {
			if was, is := identity.Former(h.PV); is {
				s.Wanted[was.Name()] = true
			}
		}
	}
	for _, d := range s.Disks {
		if d.State == machine.Ready {
			s.Wanted[d.ID.Name()] = true
		}
	}
	for _, v := range s.Launcher.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Cached, s.Launcher.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return err
		}
		pv, err := r.VolumeOf(ctx, c)
		if err != nil || pv == nil {
			return err
		}
		s.Wanted[identity.Volume(pv).Name()] = true
		if was, is := identity.Former(pv); is {
			s.Wanted[was.Name()] = true
		}
	}
	m, ok := launcherpod.ReadMachine(s.Launcher)
	if !ok {
		return nil
	}
	for _, v := range m.Spec.Volumes { // as with claims: what it was started with is the launcher's until it ends
		if !v.Networked() {
			continue
		}
		for _, servers := range [][]string{nil, diskstate.ServersOf(s.Launcher, v)} {
			if id, err := identity.Network(v.NetworkSource, servers...); err == nil {
				s.Wanted[id.Name()] = true
			}
		}
	}
	for i := range records.Items {
		if name := records.Items[i].Name; !s.Wanted[name] {
			s.Surplus = append(s.Surplus, name)
		}
	}
	return nil
}

// Awaited reports whether the guest has the disk and is to give it back.
func (h *Added) Awaited() bool { return !h.Wanted && Situation(h.Holder) == machine.Up }

// AskGuest asks the launcher of a running guest, or one that makes copies, whether the guest waits for a disk, for the progress of
// copies and for a description of the guest.
func (r *Reader) AskGuest(ctx context.Context, s *Instance) {
	if Situation(s.Launcher) != machine.Up && !s.MakesCopies() || !cluster.OwnedBy(s.Launcher, s.Object.UID) {
		return
	}
	var err error
	s.Returns, err = r.Ask(s.Launcher)
	s.Asked = errors.Is(err, probe.ErrNoAnswerYet)
	s.Heard = err == nil
	if err != nil {
		log.FromContext(ctx).V(1).Info("no answer about the guest", "launcher", s.Launcher.Name, "error", err.Error())
	}
}
