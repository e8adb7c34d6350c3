package machine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/machinefields"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// base is an instance and its pods.
type base struct {
	instance *kubevirt.VirtualMachineInstance
	consumer *corev1.Pod // nil: there is none
	launcher *corev1.Pod // nil: there is none
	// logins has the addresses where the launcher says that it has logged in, by volume; nil: it has not said so, or they are recorded.
	logins map[string][]string
}

// run is one instance and everything its next step depends on, read once.
type run struct {
	base
	disks  []disk
	pods   render.Machine
	past   *ending       // how its guest ended, if its launcher is gone; nil: it has not started, or has a launcher
	others []*corev1.Pod // launchers that its guest was in or is to go to
	// migration is the last of its migrations that there is a word of; nil: there was none.
	migration *kubevirt.MigrationState
	classes   map[string]*storagev1.StorageClass // of claims that one node can have at a time, while there is a launcher
	returning []string                           // claims that are to get the volumes that their data moved to
	hot       []*hot                             // what the launcher was not started with
	kept      []*kept                            // copies that are to be kept in claims
	removed   []string                           // volumes the launcher was started with and that the instance no longer lists
	returns   launcherapi.Returns
	heard     bool            // the launcher said so when it was asked whether its guest waits
	asked     bool            // it has not said so far what became of them
	answered  bool            // the launcher said so just now
	keeps     map[string]bool // the records of disks that are volumes of the machine
	surplus   []string        // the records of disks that are none any more
	away      bool            // the launcher's node does not answer
	agentless bool            // the launcher's node has no agent, and the launcher would wait for one
	lost      string          // why a node with its data is gone for good, and which; empty: none is
	misplaced string          // that its disks are where it may not run, and what to do about it; empty: they are not
	updates   updates         // volumes that were changed to other claims
	// unsupported are sentences about settings of the instance that guests here cannot have; empty: there are none.
	unsupported string
	// processor is why its processor keeps the guest on its node, and what to say of it; empty: it does not.
	processor     state.FixedCause
	processorText string
}

// disk is one volume of the instance that is in a claim.
type disk struct {
	name      string
	claim     *corev1.PersistentVolumeClaim // nil: there is none
	volume    *cdiv1.DataVolume             // nil: the claim is not filled by a DataVolume
	is        machine.Disks
	unoffered bool                // it is a copy, and nobody has the medium that it is to be kept on
	why       string              // for a person
	reason    state.MachineReason // of a disk that Failed and has one of its own
	undecided bool                // whether it is mounted is known when its claim is bound
	direct    *netdisk.Behind     // opened without a mount; nil: it is mounted
	login     *corev1.Secret      // what the disk is opened with, to be made before the launcher; nil: nothing
	pv        *corev1.PersistentVolume
	id        identity.Disk // of a disk that is Ready
	servers   []string      // the addresses of its servers; empty: they are not known, or it has none
	logsIn    bool          // it is at a server where the launcher has not logged in yet, as far as is recorded
	mode      accessv1.Mode
	access    machine.Access
	copied    *kubevirt.DiskCopy // the guest has a copy of it; nil: it has the disk itself
	holds     bool               // the launcher is among its holders
	early     bool               // it is being filled, and the guest can have it meanwhile
	grows     int64              // the size that the disk in its claim is to have at least; 0: it has the size that it has
	empty     int64              // the size of the disk to make in the claim if there is none yet; 0: none is to be made
}

// observe reads what one instance depends on.
func (r *Reconciler) observe(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*run, error) {
	s := &run{base: base{instance: i}, pods: render.Machine{Instance: i, Image: r.options.Image, Emulate: r.options.Emulate, KVM: r.options.kvm(),
		Reach: r.options.Reach}}
	var err error
	if s.unsupported, err = machinefields.Unsupported(i.Spec, "spec"); err != nil {
		return nil, err
	}
	if s.consumer, err = r.consumerOf(ctx, i); err != nil {
		return nil, err
	}
	if err := r.observeLaunchers(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observePast(ctx, s); err != nil {
		return nil, err
	}
	r.observeLogins(ctx, &s.base)
	for _, v := range i.Spec.Volumes {
		if err := r.observeVolume(ctx, s, v); err != nil {
			return nil, err
		}
	}
	for _, look := range []func(context.Context, *run) error{r.observeCopies, r.observeNode, r.observeLost, r.observeMoves, r.observeProcessors, r.observeRegistries, r.observeAgent} {
		if err := look(ctx, s); err != nil {
			return nil, err
		}
	}
	r.observeWaits(ctx, s)
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

// observeVolume adds the disk of a volume that the machine is started with, and what its pod has to know of it. A volume that
// is made for the pod alone is nobody else's concern.
func (r *Reconciler) observeVolume(ctx context.Context, s *run, v kubevirt.Volume) error {
	if d := hostDisk(r.options.HostDirectories, v); d != nil {
		s.disks = append(s.disks, *d)
		return nil
	}
	if v.Networked() && startedWith(s.launcher, v) {
		d, err := r.networkDisk(ctx, &s.base, v, s.allDisks())
		if err != nil {
			return err
		}
		s.disks = append(s.disks, d)
		return nil
	}
	name, readOnly := render.ClaimOf(v)
	if name == "" || !coldVolume(s.launcher, v) {
		return nil
	}
	d, err := r.disk(ctx, &s.base, v, claimIn(s.launcher, v))
	if err != nil {
		return err
	}
	returns, err := r.observeReplaced(ctx, &s.base, &d, name)
	if err != nil {
		return err
	}
	if returns {
		s.returning = append(s.returning, name)
	}
	if err := r.observeAccess(ctx, &s.base, &d, s.disks); err != nil {
		return err
	}
	if err := r.observeMounts(ctx, &s.base, &d); err != nil {
		return err
	}
	s.disks = append(s.disks, d)
	switch {
	case d.direct != nil:
		s.pods.Open(v.Name, d.direct.Direct)
	case d.undecided:
		s.pods.Open(v.Name, netdisk.Direct{}) // a consumer need not mount it
	case d.block():
		s.pods.Block = append(s.pods.Block, v.Name)
	}
	if d.grows > 0 {
		s.pods.Grow(v.Name, d.grows)
	}
	if d.empty > 0 && !readOnly {
		s.pods.MakeEmpty(v.Name, d.empty)
	}
	return nil
}

// observeNode looks whether a launcher that is not ready is on a node that answers: its pod looks as it did last.
func (r *Reconciler) observeNode(ctx context.Context, s *run) error {
	if s.launcher == nil || s.launcher.Spec.NodeName == "" || pods.Ready(s.launcher) {
		return nil
	}
	node, err := cluster.Get[corev1.Node](ctx, r.reader, "", s.launcher.Spec.NodeName)
	if err != nil {
		return err
	}
	s.away = nodeselect.Away(node)
	return nil
}

// observeLost looks where the data of a launcher is that no node will have.
func (r *Reconciler) observeLost(ctx context.Context, s *run) error {
	if s.launcher == nil || situation(s.launcher) != machine.Unplaceable {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.reader.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, d := range s.disks {
		if d.pv == nil || d.pv.Spec.NodeAffinity == nil || d.pv.Spec.NodeAffinity.Required == nil {
			continue
		}
		where, err := nodeaffinity.NewNodeSelector(d.pv.Spec.NodeAffinity.Required)
		if err != nil {
			continue // the scheduler says what is wrong with it
		}
		fits := slices.DeleteFunc(slices.Clone(nodes.Items), func(n corev1.Node) bool { return !where.Match(&n) })
		if !slices.ContainsFunc(fits, func(n corev1.Node) bool { return !podend.OutOfService(&n) }) {
			s.lost = lostText(d, fits)
		}
		allowed := nodeaffinity.GetRequiredNodeAffinity(s.launcher)
		if !slices.ContainsFunc(fits, func(n corev1.Node) bool { ok, err := allowed.Match(&n); return ok || err != nil }) && len(fits) > 0 {
			s.misplaced = fmt.Sprintf("; PersistentVolumeClaim %s is on node %s, where the machine's nodeSelector or affinity does not let it run: "+
				"stop it, and have its disks moved: virtctl migrate %s", d.claim.Name, fits[0].Name, s.instance.Name)
		}
	}
	return nil
}

func lostText(d disk, nodes []corev1.Node) string {
	text := fmt.Sprintf("volume %s of PersistentVolumeClaim %s is on ", d.pv.Name, d.claim.Name)
	if len(nodes) == 0 {
		return text + "a node that was deleted"
	}
	return text + fmt.Sprintf("node %s, which is out of service", nodes[0].Name)
}

// consumerOf is the instance's consumer. One of its name that is somebody else's is not there: Create says that it is in
// the way. One that was the instance's and was orphaned still has its disks, so it counts; what it says does not.
func (r *Reconciler) consumerOf(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	pod, err := cluster.Get[corev1.Pod](ctx, r.reader, i.Namespace, render.Machine{Instance: i}.PodName(render.Consumer))
	if err != nil || pod == nil || !cluster.OwnedBy(pod, i.UID) && pod.Labels[render.LabelCreatedBy] != string(i.UID) {
		return nil, err
	}
	return pod, nil
}

func (r *Reconciler) disk(ctx context.Context, s *base, v kubevirt.Volume, name string) (disk, error) {
	namespace := s.instance.Namespace
	d := disk{name: v.Name, mode: mode(v, s.drive(v.Name)), copied: v.Copied()}
	var err error
	if d.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, namespace, name); err != nil {
		return d, err
	}
	// A claim that a DataVolume fills is not to be booted from before it is full, however the machine names it.
	if r.data {
		if d.volume, err = cluster.Get[cdiv1.DataVolume](ctx, r.reader, namespace, name); err != nil {
			return d, err
		}
	}
	if s.owns(d.claim) {
		d.volume = nil // it has only the name of the claim
	}
	d.is, d.why = d.situation(name)
	if d.volume == nil && d.claim != nil && d.is == machine.Ready {
		if err = r.observePlain(ctx, &d); err != nil {
			return d, err
		}
	}
	if d.is == machine.Ready && d.claim != nil && r.data {
		if proof, lacks := clonesource.Complete(d.claim); proof == clonesource.Unproven && (d.volume == nil || clonesource.Refilled(d.claim)) {
			d.is, d.why = machine.Filling, fmt.Sprintf("PersistentVolumeClaim %s is not filled: %s", name, lacks)
			if clonesource.PopulatedByUs(d.claim) {
				d.why = pending(d.claim)
			}
		}
	}
	d.observeEarly(s.launcher)
	if err := r.identify(ctx, &d); err != nil {
		return d, err
	}
	if err := r.observeDirect(ctx, s, v, &d); err != nil {
		return d, err
	}
	return d, r.observeGrowth(ctx, &d)
}

func (d disk) block() bool {
	return d.claim != nil && d.claim.Spec.VolumeMode != nil && *d.claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// situation is the disk's part of machine.Disks.
func (d disk) situation(name string) (machine.Disks, string) {
	switch {
	case d.volume == nil && d.claim == nil:
		return machine.Missing, fmt.Sprintf("neither a DataVolume nor a PersistentVolumeClaim %s exists", name)
	case d.claim != nil && d.claim.Status.Phase == corev1.ClaimLost:
		return machine.Failed, fmt.Sprintf("PersistentVolumeClaim %s has lost its volume", name)
	case d.volume == nil:
		return machine.Ready, "" // an unbound one is bound by the launcher itself
	case d.in(cdiv1.Succeeded) && d.claim == nil:
		return machine.Filling, fmt.Sprintf("PersistentVolumeClaim %s of DataVolume %s is gone", name, name)
	case d.in(cdiv1.Succeeded):
		return machine.Ready, ""
	case d.in(cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation):
		return machine.Held, fmt.Sprintf("DataVolume %s waits for its first consumer", name)
	}
	return volumeSituation(d.volume)
}

// volumeSituation is the situation of a disk whose DataVolume is not Succeeded and waits for nobody.
func volumeSituation(v *cdiv1.DataVolume) (machine.Disks, string) {
	switch {
	case v.Status.Phase == cdiv1.Failed:
		return machine.Failed, fmt.Sprintf("DataVolume %s failed: %s", v.Name, message(v))
	case tryFailed(v):
		return machine.Failing, filling(v)
	}
	return machine.Filling, filling(v)
}

// tryFailed reports whether the last try to fill a volume failed, by the reasons that every data side has in its Running condition.
func tryFailed(v *cdiv1.DataVolume) bool {
	return slices.ContainsFunc(v.Status.Conditions, func(c cdiv1.DataVolumeCondition) bool {
		return c.Type == cdiv1.DataVolumeRunning && c.Status == corev1.ConditionFalse && (c.Reason == "Error" || c.Reason == "ImagePullFailed")
	})
}

func (d disk) in(phases ...cdiv1.DataVolumePhase) bool {
	return slices.Contains(phases, d.volume.Status.Phase)
}

// filling says how far a volume is.
func filling(v *cdiv1.DataVolume) string {
	phase := v.Status.Phase
	if phase == cdiv1.PhaseUnset {
		phase = cdiv1.Pending
	}
	text := fmt.Sprintf("DataVolume %s is %s", v.Name, phase)
	if v.Status.Progress != "" && v.Status.Progress != "N/A" {
		text += fmt.Sprintf(" (%s)", v.Status.Progress)
	}
	if m := message(v); m != "" {
		text += ": " + m
	}
	return text
}

func message(v *cdiv1.DataVolume) string {
	for _, c := range v.Status.Conditions {
		if c.Type == cdiv1.DataVolumeReady {
			return c.Message
		}
	}
	return ""
}

// facts are what the decision sees.
func (s *run) facts() machine.Facts {
	f := machine.Facts{
		Leaving:  s.instance.DeletionTimestamp != nil && !s.holdsEnd(),
		Disks:    s.worst(),
		Access:   s.access(),
		Consumer: consumerSituation(s.consumer),
		Launcher: situation(s.launcher),
		Others:   s.otherLaunchers(),
		Past:     s.pastFact(),

		Unsupported: s.unsupported != "",
	}
	if f.Launcher == machine.Placed && s.arrives() {
		f.Launcher = machine.Up // it has the guest, and the kubelet has not asked it yet
	}
	if s.launcher != nil {
		f.Released = s.released()
		f.Nominated = s.consumer == nil || s.consumer.Spec.NodeName == "" ||
			s.launcher.Status.NominatedNodeName == s.consumer.Spec.NodeName
	}
	return f
}

// worst is what counts of all disks; Ready < Held < Filling < Failing < Missing < Failed.
func (s *run) worst() machine.Disks {
	worst := machine.Ready
	for _, d := range s.disks {
		worst = max(worst, d.is)
	}
	return worst
}
