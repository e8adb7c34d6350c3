package fill

import (
	cloning "github.com/berth-vm/berth/internal/controller/clone"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/controller/worker"

	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/pkg/claim"
)

// Seen is the part of the cluster that one claim depends on, read once.
type Seen struct {
	order    Order
	source   *cdiv1.DataVolumeSource // what the volume is filled from, references followed; nil: another populator
	settings config.Settings
	claim    *corev1.PersistentVolumeClaim // nil: there is none
	class    *storagev1.StorageClass       // of the claim; nil: none, or one that does not exist
	wanted   corev1.PersistentVolumeClaimSpec
	lacks    error  // why wanted is no complete claim
	small    string // why the claim has no room for what is cloned to it; empty: it has, or it is no clone
	worker   *corev1.Pod
	report   *task.Report // what the worker left; nil: nothing yet, or it could not be read
	progress *task.Progress
	cutOff   bool   // the worker's node does not answer
	trouble  string // what the kubelet says keeps the worker from starting
	now      time.Time
	clone    cloning.Seen             // what the claim is cloned from, if it is; else only what it is filled from
	reserved *corev1.PersistentVolume // the claim's volume, if it was there before the claim; nil: it was not, or there is none yet
	access   volume.Access
	holder   string // who else has the claim's disk, as a sentence; "" if none
	filled   bool   // the volume of a claim that a user made records that it was filled, for this claim
	moved    bool   // the claim is about to get the volume that its data moved to

	besideBackup bool // only some nodes can read the backup that the claim is filled with, so the claim is bound where its worker runs
}

// Observe reads everything a decision about an order depends on. An error means that the cluster could not be read; an error in
// the order itself is a fact.
func (e *Engine) Observe(ctx context.Context, o Order) (*Seen, error) {
	s := &Seen{order: o, now: e.clock.Now()}
	var err error
	if s.settings, err = e.settings.Settings(ctx); err != nil {
		return nil, err
	}
	if s.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, o.Namespace, o.Name); err != nil {
		return nil, err
	}
	if err := e.observeMoved(ctx, s); err != nil {
		return nil, err
	}
	if err := e.observeReserved(ctx, s); err != nil {
		return nil, err
	}
	if s.clone, err = e.clones.Find(ctx, s.order.cloning(), s.target()); err != nil {
		return nil, err
	}
	s.source = s.clone.Source()
	if err := e.observeBackup(ctx, s); err != nil {
		return nil, err
	}
	if s.claim == nil {
		if err := e.complete(ctx, s); err != nil {
			return nil, err
		}
		return s, e.clones.Observe(ctx, &s.clone, s.target())
	}
	if name := s.claim.Spec.StorageClassName; name != nil && *name != "" {
		if s.class, err = cluster.Get[storagev1.StorageClass](ctx, e.reader, "", *name); err != nil {
			return nil, err
		}
	}
	if s.worker, err = cluster.Owned[corev1.Pod](ctx, e.reader, o.Owner.UID, o.Namespace, render.WorkerName(s.role(), o.Name)); err != nil {
		return nil, err
	}
	s.report = worker.Report(s.worker)
	if err := e.observeNode(ctx, s); err != nil {
		return nil, err
	}
	if err := e.clones.Observe(ctx, &s.clone, s.target()); err != nil {
		return nil, err
	}
	if err := e.observeRoom(ctx, s); err != nil {
		return nil, err
	}
	if err := e.observeAccess(ctx, s); err != nil {
		return nil, err
	}
	switch s.workerFact() { //nolint:exhaustive // only these two have more to be seen
	case volume.Running:
		s.progress = e.ask.Progress(ctx, s.worker)
	case volume.Pending:
		s.trouble = worker.Trouble(ctx, e.live, s.worker, s.now)
	}
	return s, nil
}

// observeMoved finds out whether the claim of a DataVolume is on its way to the volume that its data moved to with the guest of a machine. It
// is deleted and made again then, and the record that says so is on a PersistentVolume, which no tenant can write.
func (e *Engine) observeMoved(ctx context.Context, s *Seen) error {
	_, is := s.order.For.(*cdiv1.DataVolume)
	settled := s.claim != nil && s.claim.DeletionTimestamp == nil && s.claim.Status.Phase != corev1.ClaimPending
	if !is || settled {
		return nil
	}
	last, _, err := replacedclaim.Of(ctx, e.reader, s.order.Namespace, s.order.Name)
	s.moved = last != nil
	return err
}

// target returns the facts about the claim that cloning needs.
func (s *Seen) target() cloning.Target {
	fact := observedClaim{s}.claimFact()
	return cloning.Target{
		Claim: s.claim, Class: s.class, Wanted: &s.wanted, Vague: s.claim == nil && s.lacks != nil, Block: s.block(),
		Recorded: s.dataFact() != volume.None, Grown: s.claim != nil && s.outgrown(),
		Readable: fact == volume.Bound || fact == volume.Waiting, Worker: s.worker,
		Settings: s.settings, Content: s.content(),
	}
}

// storage returns the cluster's storage, to complete claims with.
func (e *Engine) storage(ctx context.Context, s *Seen) (claim.Cluster, error) {
	var classes storagev1.StorageClassList
	if err := e.reader.List(ctx, &classes); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage classes: %w", err)
	}
	var profiles cdiv1.StorageProfileList
	if err := e.reader.List(ctx, &profiles); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage profiles: %w", err)
	}
	return claim.Cluster{Classes: classes.Items, Profiles: profiles.Items, Overhead: &s.settings.Overhead}, nil
}

// observeRoom finds out whether a claim that was made too small for its source still is: it may have grown. Others are not checked again.
func (e *Engine) observeRoom(ctx context.Context, s *Seen) error {
	if s.claim.Annotations[names.CloneSize] != names.CloneSizeSmall || s.worker != nil || !s.order.owns(s.claim) {
		return nil
	}
	storage, err := e.storage(ctx, s)
	if err != nil {
		return err
	}
	request := claim.FromPVC(&s.claim.Spec)
	request.Source = s.clone.Measure(render.Describe(s.source))
	_, lack := claim.Complete(request, storage)
	s.small = noRoom(lack)
	return nil
}

// noRoom returns why a claim has no room for its source, as a sentence; empty: that is not what err says.
func noRoom(err error) string {
	var lack *claim.Error
	if !errors.As(err, &lack) || lack.Lack != claim.LacksRoomForSource {
		return ""
	}
	return lack.Text + "; " + lack.Advice
}

// complete works out the claim to make.
func (e *Engine) complete(ctx context.Context, s *Seen) error {
	storage, err := e.storage(ctx, s)
	if err != nil {
		return err
	}
	request := claim.FromPVC(s.order.Spec.PVC)
	if s.order.Spec.Storage != nil {
		request = claim.FromStorage(s.order.Spec.Storage)
	}
	request.Archive = s.content() == task.Archive
	request.Source = s.clone.Measure(render.Describe(s.source))
	if s.reserved != nil {
		request.Source = nil // it is not copied: the volume that waits for the claim has what is wanted
		if asked := s.asked(); asked.IsZero() {
			request.Source = reservedSize(s.reserved)
		}
	}
	result, err := claim.Complete(request, storage)
	// The claim of a DataVolume is made all the same, as upstream makes it, and can grow.
	if _, is := s.order.For.(*cdiv1.DataVolume); is && noRoom(err) != "" {
		s.small, request.Source = noRoom(err), nil
		result, err = claim.Complete(request, storage)
	}
	s.wanted, s.class, s.lacks = result.Spec, result.Class, err
	var lack *claim.Error
	if errors.As(err, &lack) && lack.Advice != "" {
		s.lacks = fmt.Errorf("%w; %s", err, lack.Advice)
	}
	return nil
}

// observeNode finds out whether the worker's node answers. A pod on a node that does not still looks as if it ran.
func (e *Engine) observeNode(ctx context.Context, s *Seen) error {
	if s.worker == nil || s.worker.Spec.NodeName == "" {
		return nil
	}
	node, err := cluster.Get[corev1.Node](ctx, e.reader, "", s.worker.Spec.NodeName)
	if err != nil {
		return err
	}
	s.cutOff = nodeselect.Away(node)
	return nil
}
