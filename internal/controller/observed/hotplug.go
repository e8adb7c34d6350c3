package observed

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
)

// Added is a volume of a running machine that its launcher was not started with.
type Added struct {
	diskstate.Disk
	Pods     render.Hot
	Wanted   bool        // the instance lists it
	Consumer *corev1.Pod // nil: there is none
	Holder   *corev1.Pod
	Plan     machine.HotPlan
	Keep     *launcherapi.KeepOrder // the guest does not get it: its copy is kept there
}

// observeHot reads the volumes that were added to a running machine, and those that were removed and still have pods.
func (r *Reader) observeHot(ctx context.Context, s *Instance) error {
	if s.Launcher == nil {
		return nil
	}
	for _, v := range s.Object.Spec.Volumes {
		h, err := r.addedVolume(ctx, s, v)
		if err != nil {
			return err
		}
		if h != nil {
			s.Added = append(s.Added, h)
		}
	}
	var list corev1.PodList
	err := r.Cached.List(ctx, &list, client.InNamespace(s.Object.Namespace), client.MatchingLabels{
		render.LabelMachine: render.HotplugDisk, render.LabelCreatedBy: string(s.Object.UID)})
	if err != nil {
		return fmt.Errorf("list the pods of added volumes: %w", err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; cluster.OwnedBy(p, s.Launcher.UID) && p.Name == s.hotPodName(p) {
			s.assign(p)
		}
	}
	return nil
}

// addedVolume is a volume that the launcher was not started with; nil if it was, or if it comes at the next start.
func (r *Reader) addedVolume(ctx context.Context, s *Instance, v kubevirt.Volume) (*Added, error) {
	var d diskstate.Disk
	var err error
	network := v.Networked() && !diskstate.StartedWith(s.Launcher, v)
	switch name, _ := render.ClaimOf(v); {
	case v.Copied() != nil: // a copy is made when a machine starts
		return nil, nil
	case network:
		d, err = r.Network(ctx, &s.Run, v, s.AllDisks())
	case diskstate.StartedWithClaim(s.Launcher, v):
		return nil, nil
	default:
		if d, err = r.Disk(ctx, &s.Run, v, name); err == nil && d.Early { // only who starts with a disk can have it before it is full
			d.State, d.Early = machine.Filling, false
		}
		if err == nil {
			err = r.Access(ctx, &s.Run, &d, s.AllDisks())
		}
		if err == nil {
			err = r.Mounts(ctx, &s.Run, &d)
		}
	}
	if err != nil {
		return nil, err
	}
	h := &Added{Disk: d, Wanted: true, Pods: render.Hot{Machine: s.Pods, Launcher: s.Launcher, Volume: v, Block: d.Block(),
		ReadOnly: s.Drive(v.Name).ReadsOnly(), Empty: d.Empty}}
	switch told, ok := s.LastOrders().Network[v.Name]; {
	case ok:
		h.Pods.Network = &told
	case network:
		h.Pods.Network = &launcherapi.Added{Volume: v}
	case d.Direct != nil:
		h.Pods.Network = &launcherapi.Added{Volume: d.Direct.Volume(v), Direct: &d.Direct.Direct}
	}
	return h, nil
}

// hotPodName returns the name that a pod of an added volume has if its labels are true. Any user can write labels.
func (s *Instance) hotPodName(p *corev1.Pod) string {
	payload := render.Launcher
	if _, consumer := p.Annotations[render.AnnConsumer]; consumer {
		payload = render.Consumer
	}
	return render.Hot{Launcher: s.Launcher, Volume: kubevirt.Volume{Name: p.Labels[render.LabelVolume]}}.PodName(payload)
}

// assign assigns a pod to its volume; a volume that is no longer wanted is known only by its pods.
func (s *Instance) assign(p *corev1.Pod) {
	name := p.Labels[render.LabelVolume]
	at := slices.IndexFunc(s.Added, func(h *Added) bool { return h.Name == name })
	if at < 0 {
		at = len(s.Added)
		s.Added = append(s.Added, &Added{Disk: diskstate.Disk{Name: name}})
	}
	if _, consumer := p.Annotations[render.AnnConsumer]; consumer {
		s.Added[at].Consumer = p
	} else {
		s.Added[at].Holder = p
	}
}

// grantable: the launcher may be told to take the disk, once it is among its holders.
func (h *Added) grantable() bool {
	return h.Wanted && h.State == machine.Ready && (h.Access == machine.Free || h.Access == machine.Have)
}

// Granted returns the added disks that the launcher may have.
func (s *Instance) Granted() []diskstate.Disk {
	var out []diskstate.Disk
	for _, h := range s.Added {
		if h.grantable() {
			out = append(out, h.Disk)
		}
	}
	return out
}

// AllDisks returns the disks that the machine was started with and those that were added.
func (s *Instance) AllDisks() []diskstate.Disk {
	out := slices.Clone(s.Disks)
	for _, h := range s.Added {
		out = append(out, h.Disk)
	}
	return out
}

// GuestDisks returns the disks that the machine was started with, followed by those that were added for its guest.
func (s *Instance) GuestDisks() []diskstate.Disk {
	out := slices.Clone(s.Disks)
	for _, h := range s.Added {
		if h.Wanted && h.Keep == nil {
			out = append(out, h.Disk)
		}
	}
	return out
}

// DiskOrders returns the orders for volumes that were added and removed since the launcher was started, with the serial number of
// the last orders.
func (s *Instance) DiskOrders() launcherapi.Disks {
	d := launcherapi.Disks{Removed: s.Removed, Sizes: s.grown(), Serial: s.LastOrders().Serial}
	for _, h := range s.Added {
		switch {
		case !h.Wanted || !h.grantable() && !s.Told(h.Name):
		case h.Keep != nil:
			if d.Keeps == nil {
				d.Keeps = map[string]launcherapi.KeepOrder{}
			}
			d.Keeps[h.Name] = *h.Keep
		default:
			d.Added = append(d.Added, s.Drive(h.Name))
			if n := h.Pods.Network; n != nil {
				if d.Network == nil {
					d.Network = map[string]launcherapi.Added{}
				}
				d.Network[h.Name] = *n
			}
		}
	}
	return d
}
