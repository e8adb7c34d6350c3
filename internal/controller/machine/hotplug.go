package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
)

// hot is a volume of a running machine that its launcher was not started with.
type hot struct {
	disk
	pods     render.Hot
	wanted   bool        // the instance lists it
	consumer *corev1.Pod // nil: there is none
	holder   *corev1.Pod
	plan     machine.HotPlan
	keep     *launcherapi.KeepOrder // the guest does not get it: its copy is kept there
}

// coldVolume says whether the launcher has the volume from the start. Before there is a launcher, every volume is one.
func coldVolume(launcher *corev1.Pod, v kubevirt.Volume) bool {
	claim, _ := render.ClaimOf(v)
	if launcher == nil || claim == "" {
		return true
	}
	return hasClaim(launcher, v.Name, claimIn(launcher, v))
}

// observeHot reads the volumes that were added to a running machine, and those that were removed and still have pods.
func (r *Reconciler) observeHot(ctx context.Context, s *run) error {
	if s.launcher == nil {
		return nil
	}
	for _, v := range s.instance.Spec.Volumes {
		h, err := r.addedVolume(ctx, s, v)
		if err != nil {
			return err
		}
		if h != nil {
			s.hot = append(s.hot, h)
		}
	}
	var list corev1.PodList
	err := r.reader.List(ctx, &list, client.InNamespace(s.instance.Namespace), client.MatchingLabels{
		render.LabelMachine: render.HotplugDisk, render.LabelCreatedBy: string(s.instance.UID)})
	if err != nil {
		return fmt.Errorf("list the pods of added volumes: %w", err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; cluster.OwnedBy(p, s.launcher.UID) && p.Name == s.hotPodName(p) {
			s.assign(p)
		}
	}
	return nil
}

// addedVolume is a volume that the launcher was not started with; nil if it was, or if it comes at the next start.
func (r *Reconciler) addedVolume(ctx context.Context, s *run, v kubevirt.Volume) (*hot, error) {
	var d disk
	var err error
	network := v.Networked() && !startedWith(s.launcher, v)
	switch name, _ := render.ClaimOf(v); {
	case v.Copied() != nil: // a copy is made when a machine starts
		return nil, nil
	case network:
		d, err = r.networkDisk(ctx, &s.base, v, s.allDisks())
	case coldVolume(s.launcher, v):
		return nil, nil
	default:
		if d, err = r.disk(ctx, &s.base, v, name); err == nil && d.early { // only who starts with a disk can have it before it is full
			d.is, d.early = machine.Filling, false
		}
		if err == nil {
			err = r.observeAccess(ctx, &s.base, &d, s.allDisks())
		}
		if err == nil {
			err = r.observeMounts(ctx, &s.base, &d)
		}
	}
	if err != nil {
		return nil, err
	}
	h := &hot{disk: d, wanted: true, pods: render.Hot{Machine: s.pods, Launcher: s.launcher, Volume: v, Block: d.block(),
		ReadOnly: s.drive(v.Name).ReadsOnly(), Empty: d.empty}}
	switch told, ok := s.lastOrders().Network[v.Name]; {
	case ok:
		h.pods.Network = &told
	case network:
		h.pods.Network = &launcherapi.Added{Volume: v}
	case d.direct != nil:
		h.pods.Network = &launcherapi.Added{Volume: d.direct.Volume(v), Direct: &d.direct.Direct}
	}
	return h, nil
}

// hotPodName is the name that a pod of an added volume has if it is what its labels say. Anybody can write labels.
func (s *run) hotPodName(p *corev1.Pod) string {
	payload := render.Launcher
	if _, consumer := p.Annotations[render.AnnConsumer]; consumer {
		payload = render.Consumer
	}
	return render.Hot{Launcher: s.launcher, Volume: kubevirt.Volume{Name: p.Labels[render.LabelVolume]}}.PodName(payload)
}

// assign gives a pod to its volume; a volume nobody wants any more is known by its pods alone.
func (s *run) assign(p *corev1.Pod) {
	name := p.Labels[render.LabelVolume]
	at := slices.IndexFunc(s.hot, func(h *hot) bool { return h.name == name })
	if at < 0 {
		at = len(s.hot)
		s.hot = append(s.hot, &hot{disk: disk{name: name}})
	}
	if _, consumer := p.Annotations[render.AnnConsumer]; consumer {
		s.hot[at].consumer = p
	} else {
		s.hot[at].holder = p
	}
}

// drive is the disk of a volume; a volume without one gets the default.
func (s *base) drive(volume string) kubevirt.Disk {
	for _, d := range s.instance.Spec.Domain.Devices.Disks {
		if d.Name == volume {
			return d
		}
	}
	return kubevirt.Disk{Name: volume}
}

// hotplug brings the volumes of a running machine a step further.
func (r *Reconciler) hotplug(ctx context.Context, s *run) error {
	if next, old := s.diskOrders(), s.lastOrders(); !equality.Semantic.DeepEqual(next, old) {
		if err := r.take(ctx, taker{pod: s.launcher, instance: s.instance}, s.granted()); err != nil {
			return err
		}
		next.Serial++
		text, err := json.Marshal(next)
		if err != nil {
			return fmt.Errorf("write the orders: %w", err)
		}
		marks := map[string]string{render.AnnGo: "yes", render.AnnDisks: string(text)}
		if err := r.cluster.Mark(ctx, s.launcher, cluster.Marks{Annotations: marks}); err != nil {
			return err
		}
	}
	for _, h := range s.hot {
		h.plan = machine.Hotplug(machine.HotFacts{
			Wanted: h.wanted, Disk: h.is, Access: h.access, Consumer: situation(h.consumer), Holder: situation(h.holder), Kept: s.returns.Kept[h.name] != ""})
		for _, a := range h.plan.Do {
			if err := r.actHot(ctx, a, h); err != nil {
				return fmt.Errorf("%s for volume %s: %w", a, h.name, err)
			}
		}
	}
	return nil
}

// budget makes the one that keeps the holders of a launcher from being evicted, if there is none.
func (r *Reconciler) budget(ctx context.Context, h *hot) error {
	b := h.pods.Budget()
	old, err := cluster.Get[policyv1.PodDisruptionBudget](ctx, r.live, b.Namespace, b.Name)
	if err != nil || old != nil {
		return err
	}
	return r.cluster.Create(ctx, b)
}

func (r *Reconciler) actHot(ctx context.Context, a machine.Action, h *hot) error {
	switch a {
	case machine.StartHotConsumer:
		return r.cluster.Create(ctx, h.pods.Pod(render.Consumer))
	case machine.StopHotConsumer:
		return r.cluster.Delete(ctx, h.consumer)
	case machine.StartHolder:
		if err := r.budget(ctx, h); err != nil {
			return err
		}
		if err := r.lend(ctx, []disk{h.disk}); err != nil {
			return err
		}
		return r.cluster.Create(ctx, h.pods.Pod(render.Launcher))
	case machine.StopHolder:
		return r.cluster.Delete(ctx, h.holder)
	case machine.StartConsumer, machine.StopConsumer, machine.StartLauncher, machine.StopLauncher, machine.Nominate,
		machine.Release, machine.Forget, machine.NoteServers, machine.TakeDisks, machine.GiveDisks, machine.GiveMaster, machine.RecordBegun, machine.RecordKept, machine.CreateDisks, machine.CreateInstance, machine.DeleteInstance, machine.AskStart, machine.TakeRequest,
		machine.StopOthers, machine.SetAlways:
	}
	return fmt.Errorf("%s is not an action on a volume", a)
}

// grantable: the launcher may be told to take the disk, once it is among its holders.
func (h *hot) grantable() bool {
	return h.wanted && h.is == machine.Ready && (h.access == machine.Free || h.access == machine.Have)
}

// granted are the added disks the launcher may have.
func (s *run) granted() []disk {
	var out []disk
	for _, h := range s.hot {
		if h.grantable() {
			out = append(out, h.disk)
		}
	}
	return out
}

// allDisks are those the machine was started with and those that were added.
func (s *run) allDisks() []disk {
	out := slices.Clone(s.disks)
	for _, h := range s.hot {
		out = append(out, h.disk)
	}
	return out
}

// guestDisks are those the machine was started with, and after them those that were added for its guest.
func (s *run) guestDisks() []disk {
	out := slices.Clone(s.disks)
	for _, h := range s.hot {
		if h.wanted && h.keep == nil {
			out = append(out, h.disk)
		}
	}
	return out
}

// told: the launcher's orders have the disk already, and its guest may have it.
func (s *base) told(volume string) bool {
	last := s.lastOrders()
	_, keeps := last.Keeps[volume]
	return keeps || slices.ContainsFunc(last.Added, func(x kubevirt.Disk) bool { return x.Name == volume })
}

// lastOrders is what the launcher was last told; nothing is the first.
func (s *base) lastOrders() launcherapi.Disks {
	var d launcherapi.Disks
	_ = json.Unmarshal([]byte(s.launcher.Annotations[render.AnnDisks]), &d) // what cannot be read is told again
	return d
}

// diskOrders is what the launcher is to be told of volumes that were added and removed since it was started, with the serial
// number of what it was told last.
func (s *run) diskOrders() launcherapi.Disks {
	d := launcherapi.Disks{Removed: s.removed, Sizes: s.grown(), Serial: s.lastOrders().Serial}
	for _, h := range s.hot {
		switch {
		case !h.wanted || !h.grantable() && !s.told(h.name):
		case h.keep != nil:
			if d.Keeps == nil {
				d.Keeps = map[string]launcherapi.KeepOrder{}
			}
			d.Keeps[h.name] = *h.keep
		default:
			d.Added = append(d.Added, s.drive(h.name))
			if n := h.pods.Network; n != nil {
				if d.Network == nil {
					d.Network = map[string]launcherapi.Added{}
				}
				d.Network[h.name] = *n
			}
		}
	}
	return d
}

// hotStatus is what is said of an added volume.
func (s *run) hotStatus(h *hot) kubevirt.VolumeStatus {
	v := h.status()
	v.Phase, v.Reason = h.plan.Phase, h.plan.Reason
	pod := h.holder
	if pod == nil {
		pod = h.consumer
	}
	// It always has a name: a server-side apply that empties an object writes null, which the API server refuses.
	v.HotplugVolume = &kubevirt.HotplugVolumeStatus{AttachPodName: render.Hot{Launcher: s.launcher, Volume: kubevirt.Volume{Name: h.name}}.PodName(render.Launcher)}
	if pod != nil {
		v.HotplugVolume.AttachPodName, v.HotplugVolume.AttachPodUID = pod.Name, pod.UID
	}
	switch {
	case h.reason != "" && h.holder == nil:
		v.Reason, v.Message = string(h.reason), h.why
	case h.plan.Reason == machine.DiskInUse:
		v.Message = h.why
	case h.plan.Reason == machine.GuestKeepsIt:
		v.Message = s.returns.Kept[h.name]
	case pod != nil && unschedulable(pod) != "":
		v.Message = unschedulable(pod)
	case h.holder != nil && failure(h.holder) != "":
		v.Message = failure(h.holder)
	}
	return v
}

// failure is why a holder's last try came to nothing.
func failure(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.LastTerminationState.Terminated; t != nil && !c.Ready {
			return t.Message
		}
	}
	return ""
}
