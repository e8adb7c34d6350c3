package observed

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/machinefields"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Instance holds one instance and all facts that its next step depends on, read once.
type Instance struct {
	diskstate.Run
	Disks  []diskstate.Disk
	Pods   render.Machine
	Past   *Ending       // how its guest ended, if its launcher is gone; nil: it has not started, or has a launcher
	Others []*corev1.Pod // launchers that its guest was in or is to go to
	// migration is the last of its migrations that there is a word of; nil: there was none.
	Migration  *kubevirt.MigrationState
	Classes    map[string]*storagev1.StorageClass // of claims that one node can have at a time, while there is a launcher
	Returning  []string                           // claims that are to get the volumes that their data moved to
	Added      []*Added                           // what the launcher was not started with
	KeptCopies []*Kept                            // copies that are to be kept in claims
	Removed    []string                           // volumes the launcher was started with and that the instance no longer lists
	Returns    launcherapi.Returns
	Heard      bool            // the launcher said so when it was asked whether its guest waits
	Asked      bool            // it has not said so far what became of them
	Answered   bool            // the launcher said so just now
	Wanted     map[string]bool // the records of disks that are volumes of the machine
	Surplus    []string        // the records of disks that are none any more
	Away       bool            // the launcher's node does not answer
	Agentless  bool            // the launcher's node has no agent, and the launcher would wait for one
	Lost       string          // why a node with its data is lost permanently, and which; empty: none is
	Misplaced  string          // that its disks are where it may not run, and what to do about it; empty: they are not
	Updates    Updates         // volumes that were changed to other claims
	// unsupported are sentences about settings of the instance that guests here cannot have; empty: there are none.
	Unsupported string
	// processor is why its processor keeps the guest on its node, and what to say of it; empty: it does not.
	processor     state.FixedCause
	processorText string
}

// Instance reads what one instance depends on.
func (r *Reader) Instance(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*Instance, error) {
	s := &Instance{Run: diskstate.Run{Object: i}, Pods: render.Machine{Instance: i, Image: r.Options.Image, Emulate: r.Options.Emulate, KVM: r.Options.kvm(),
		Reach: r.Options.Reach}}
	var err error
	if s.Unsupported, err = machinefields.Unsupported(i.Spec, "spec"); err != nil {
		return nil, err
	}
	if s.Consumer, err = r.ConsumerOf(ctx, i); err != nil {
		return nil, err
	}
	if err := r.observeLaunchers(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observePast(ctx, s); err != nil {
		return nil, err
	}
	r.observeLogins(ctx, &s.Run)
	for _, v := range i.Spec.Volumes {
		if err := r.observeVolume(ctx, s, v); err != nil {
			return nil, err
		}
	}
	for _, look := range []func(context.Context, *Instance) error{r.observeCopies, r.observeNode, r.observeLost, r.observeMoves, r.observeProcessors, r.Registries, r.NodeAgent} {
		if err := look(ctx, s); err != nil {
			return nil, err
		}
	}
	r.AskGuest(ctx, s)
	if err := r.observeKeeps(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observeHot(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observeClasses(ctx, s); err != nil {
		return nil, err
	}
	return s, r.observeUpdates(ctx, s)
}

// observeVolume adds the disk of a volume that the machine is started with, and the data that its pod needs. A volume that is made
// for the pod alone needs no access record.
func (r *Reader) observeVolume(ctx context.Context, s *Instance, v kubevirt.Volume) error {
	if d := diskstate.HostDisk(r.Options.HostDirectories, v); d != nil {
		s.Disks = append(s.Disks, *d)
		return nil
	}
	if v.Networked() && diskstate.StartedWith(s.Launcher, v) {
		d, err := r.Network(ctx, &s.Run, v, s.AllDisks())
		if err != nil {
			return err
		}
		s.Disks = append(s.Disks, d)
		return nil
	}
	name, readOnly := render.ClaimOf(v)
	if name == "" || !diskstate.StartedWithClaim(s.Launcher, v) {
		return nil
	}
	d, err := r.Disk(ctx, &s.Run, v, diskstate.ClaimIn(s.Launcher, v))
	if err != nil {
		return err
	}
	returns, err := r.Replaced(ctx, &s.Run, &d, name)
	if err != nil {
		return err
	}
	if returns {
		s.Returning = append(s.Returning, name)
	}
	if err := r.Access(ctx, &s.Run, &d, s.Disks); err != nil {
		return err
	}
	if err := r.Mounts(ctx, &s.Run, &d); err != nil {
		return err
	}
	s.Disks = append(s.Disks, d)
	switch {
	case d.Direct != nil:
		s.Pods.Open(v.Name, d.Direct.Direct)
	case d.Undecided:
		s.Pods.Open(v.Name, netdisk.Direct{}) // a consumer need not mount it
	case d.Block():
		s.Pods.Block = append(s.Pods.Block, v.Name)
	}
	if d.Grows > 0 {
		s.Pods.Grow(v.Name, d.Grows)
	}
	if d.Empty > 0 && !readOnly {
		s.Pods.MakeEmpty(v.Name, d.Empty)
	}
	return nil
}

// observeNode looks whether a launcher that is not ready is on a node that answers: its pod looks as it did last.
func (r *Reader) observeNode(ctx context.Context, s *Instance) error {
	if s.Launcher == nil || s.Launcher.Spec.NodeName == "" || pods.Ready(s.Launcher) {
		return nil
	}
	node, err := cluster.Get[corev1.Node](ctx, r.Cached, "", s.Launcher.Spec.NodeName)
	if err != nil {
		return err
	}
	s.Away = nodeselect.Away(node)
	return nil
}

// observeLost looks where the data of a launcher is that no node will have.
func (r *Reader) observeLost(ctx context.Context, s *Instance) error {
	if s.Launcher == nil || Situation(s.Launcher) != machine.Unplaceable {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.Cached.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, d := range s.Disks {
		if d.PV == nil || d.PV.Spec.NodeAffinity == nil || d.PV.Spec.NodeAffinity.Required == nil {
			continue
		}
		where, err := nodeaffinity.NewNodeSelector(d.PV.Spec.NodeAffinity.Required)
		if err != nil {
			continue // the scheduler says what is wrong with it
		}
		fits := slices.DeleteFunc(slices.Clone(nodes.Items), func(n corev1.Node) bool { return !where.Match(&n) })
		if !slices.ContainsFunc(fits, func(n corev1.Node) bool { return !podend.OutOfService(&n) }) {
			s.Lost = LostText(d, fits)
		}
		allowed := nodeaffinity.GetRequiredNodeAffinity(s.Launcher)
		if !slices.ContainsFunc(fits, func(n corev1.Node) bool { ok, err := allowed.Match(&n); return ok || err != nil }) && len(fits) > 0 {
			s.Misplaced = fmt.Sprintf("; PersistentVolumeClaim %s is on node %s, where the machine's nodeSelector or affinity does not let it run: "+
				"stop it, and have its disks moved: virtctl migrate %s", d.Claim.Name, fits[0].Name, s.Object.Name)
		}
	}
	return nil
}

// LostText says where the volume of a disk is that no node can reach.
func LostText(d diskstate.Disk, nodes []corev1.Node) string {
	text := fmt.Sprintf("volume %s of PersistentVolumeClaim %s is on ", d.PV.Name, d.Claim.Name)
	if len(nodes) == 0 {
		return text + "a node that was deleted"
	}
	return text + fmt.Sprintf("node %s, which is out of service", nodes[0].Name)
}

// ConsumerOf returns the instance's consumer. A pod of its name with another owner counts as missing: Create returns an error
// about it. One that was the instance's and was orphaned still has its disks, so it counts; its report does not.
func (r *Reader) ConsumerOf(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	pod, err := cluster.Get[corev1.Pod](ctx, r.Cached, i.Namespace, render.Machine{Instance: i}.PodName(render.Consumer))
	if err != nil || pod == nil || !cluster.OwnedBy(pod, i.UID) && pod.Labels[render.LabelCreatedBy] != string(i.UID) {
		return nil, err
	}
	return pod, nil
}

// Facts returns the facts that the decision needs.
func (s *Instance) Facts() machine.Facts {
	f := machine.Facts{
		Leaving:  s.Object.DeletionTimestamp != nil && !s.HoldsEnd(),
		Disks:    s.Worst(),
		Access:   s.access(),
		Consumer: ConsumerSituation(s.Consumer),
		Launcher: Situation(s.Launcher),
		Others:   s.otherLaunchers(),
		Past:     s.pastFact(),

		Unsupported: s.Unsupported != "",
	}
	if f.Launcher == machine.Placed && s.Arrives() {
		f.Launcher = machine.Up // it has the guest, and the kubelet has not asked it yet
	}
	if s.Launcher != nil {
		f.Released = s.Released()
		f.Nominated = s.Consumer == nil || s.Consumer.Spec.NodeName == "" ||
			s.Launcher.Status.NominatedNodeName == s.Consumer.Spec.NodeName
	}
	return f
}

// Worst returns the worst state of all disks; Ready < Held < Filling < Failing < Missing < Failed.
func (s *Instance) Worst() machine.Disks {
	worst := machine.Ready
	for _, d := range s.Disks {
		worst = max(worst, d.State)
	}
	return worst
}
