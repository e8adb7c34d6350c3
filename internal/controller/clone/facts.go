package clone

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/clonenode"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// decision is the plan for what was observed.
type decision struct {
	where    clonenode.Place
	strategy clone.Strategy
	reason   string // of the strategy
	fellBack bool   // from a cheaper one
	step     clone.Step
}

// decide decides where and how the clone is made, and the next step. All facts were read before.
func (s *Seen) decide() {
	s.where = clonenode.Decide(s.place)
	s.strategy, s.reason, s.fellBack = clone.Impossible, "", false
	if s.chosen {
		source, target, classes := s.source(), s.wanted(), s.abilities()
		s.strategy, s.reason = clone.Choose(source, target, classes)
		s.fellBack = clone.FellBack(s.strategy, source, classes)
		if c := s.target.Claim; c != nil && c.Annotations[names.CloneWhy] != "" {
			s.reason = c.Annotations[names.CloneWhy] // chosen when the claim was made; that it exists now is no reason
		}
	}
	s.step = clone.Next(s.facts())
}

// source returns the facts about the source that the choice of the strategy depends on.
func (s *Seen) source() clone.Source {
	source := clone.Source{IsSnapshot: s.found.Snapshot != nil, Namespace: s.at.Namespace, Busy: s.user != ""}
	source.Provisioner, source.Block = provisioner(s.class), s.block()
	if source.IsSnapshot {
		source.Provisioner = volumesnapshot.Driver(s.found.Content)
	}
	return source
}

// block reports whether the source's data is that of a device. A snapshot of unknown mode is taken to have the mode of the clone.
func (s *Seen) block() bool {
	if mode := s.found.Mode(); mode != "" {
		return mode == corev1.PersistentVolumeBlock
	}
	return s.target.Block
}

// wanted returns the facts about the claim that the choice of the strategy depends on.
func (s *Seen) wanted() clone.Target {
	t := clone.Target{
		Namespace: s.order.Namespace, Block: s.target.Block, Made: s.target.Claim != nil, Provisioner: provisioner(s.target.Class),
		Apart: s.apart, Elsewhere: s.where.Why,
	}
	if s.target.Wanted != nil {
		size := s.target.Wanted.Resources.Requests[corev1.ResourceStorage]
		t.Larger = size.Cmp(s.found.Size()) > 0
	}
	return t
}

// abilities returns what the storage can do.
func (s *Seen) abilities() clone.Classes {
	c := clone.Classes{Driver: s.driver, SnapshotClass: s.classes.target}
	if class := s.target.Class; class != nil {
		c.Expands = class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
	}
	if s.wish != nil {
		c.Wanted = clone.Strategy(*s.wish)
	}
	if s.order.Wish != "" && s.target.Class != nil {
		c.Wanted, c.Asked = s.order.Wish, true
	}
	if s.restores != nil && s.target.Class != nil {
		c.RestoreClass = s.restores.Name
	}
	return c
}

// facts returns the facts that the next step depends on.
func (s *Seen) facts() clone.Facts {
	f := clone.Facts{
		Origin: s.originFact(), Claim: s.claimFact(), Grown: s.target.Grown, Lost: s.lost != "", Spot: s.spot(), Way: s.strategy,
		OfSnapshot: s.found.Snapshot != nil, Busy: s.user != "",
		Freezes:  s.target.Claim != nil && s.target.Readable && s.classes.source != "",
		Restored: aid(s.restored != nil, s.readable),
		Taken:    aid(s.taken != nil, s.taken != nil && volumesnapshot.Ready(s.taken)),
		Served:   served(s.server) && s.admitted && !s.outdated(s.server),
	}
	f.FromSnapshot = s.made() && s.target.Claim.Spec.DataSource.Kind == volumesnapshot.Kind
	return f
}

func (s *Seen) originFact() clone.Origin {
	switch {
	case s.resolved.Lacks != "":
		return clone.Unresolved
	case s.denied != nil:
		return clone.Forbidden
	case !s.found.There():
		return clone.Missing
	case s.found.Lacks() != "":
		return clone.Unfilled
	}
	return clone.Found
}

func (s *Seen) claimFact() clone.Claim {
	switch {
	case s.made() && s.target.Claim.Spec.VolumeName != "":
		return clone.Delivered
	case s.made():
		return clone.ByDriver
	case s.target.Recorded:
		return clone.Settled
	case s.target.Vague:
		return clone.Vague
	case s.target.Worker != nil:
		return s.copiedFact()
	case s.target.Claim == nil:
		return clone.Unmade
	}
	return clone.Plain
}

// spot returns where the driver of a claim can fill it.
func (s *Seen) spot() clone.Spot {
	switch {
	case s.where.Why != "" && (!s.made() || !s.acrossSpaces()): // a claim that we did not make is not made again
		return clone.Elsewhere
	case s.where.Beside != "" && s.target.Claim != nil && s.target.Claim.Annotations[names.SelectedNode] != s.where.Beside:
		return clone.Beside
	}
	return clone.Anywhere
}

func aid(begun, ready bool) clone.Aid {
	switch {
	case ready:
		return clone.There
	case begun:
		return clone.Coming
	}
	return clone.None
}

// served reports whether the worker that serves the source can be read from.
func served(p *corev1.Pod) bool {
	return p != nil && pods.Ready(p) && p.Status.PodIP != "" && p.DeletionTimestamp == nil
}

// copiedFact returns the situation of a claim that a worker copies to: whether the server that the worker was made to read from
// is there.
func (s *Seen) copiedFact() clone.Claim {
	ip := readsFrom(s.target.Worker)
	switch p := s.server; {
	case ip == "" || !s.asked:
		return clone.Copied
	case s.found.Snapshot != nil && s.restored == nil:
		return clone.Superseded // what is served has to be restored again first
	case p == nil || pods.Over(p) || p.DeletionTimestamp != nil || p.Status.PodIP == "":
		return clone.Unserved
	case p.Status.PodIP == ip:
		return clone.Copied
	case served(p) && s.admitted:
		return clone.Superseded
	}
	return clone.Unserved
}

// readsFrom returns the address of the server that a worker was made to read from; empty: it reads from none.
func readsFrom(worker *corev1.Pod) string {
	if worker == nil {
		return ""
	}
	for _, alias := range worker.Spec.HostAliases {
		if slices.Contains(alias.Hostnames, peerName) {
			return alias.IP
		}
	}
	return ""
}

// Flow returns how the claim gets its data.
func (s *Seen) Flow() volume.Flow { return s.step.Flow }

// Origin returns what has to be done or waited for first; Usable for a volume that is no clone, unless the backup that it names is not there.
func (s *Seen) Origin() volume.Origin {
	switch {
	case s.IsClone():
		return s.step.Origin
	case s.resolved.Lacks != "":
		return volume.Missing
	}
	return volume.Usable
}

// Why returns what to say about that: what is waited for, or else why the clone is made in the way it is.
func (s *Seen) Why() string {
	switch s.Origin() {
	case volume.Missing:
		if s.resolved.Lacks != "" {
			return s.resolved.Lacks
		}
		return "cloning starts when it is created"
	case volume.Forbidden:
		return s.denied.Error()
	case volume.Unfilled:
		return s.found.Lacks()
	case volume.Busy:
		return s.user
	case volume.Misplaced:
		if s.lost != "" {
			return s.lost
		}
		return s.where.Why
	case volume.Usable, volume.Unfit, volume.Preparing, volume.Restoring, volume.Unready, volume.Replaced, volume.Beside, volume.Larger:
	}
	return s.Reason()
}

// Reason returns why this strategy was chosen; empty if none is chosen yet, or any more.
func (s *Seen) Reason() string {
	if s.step.Via && s.found.Snapshot == nil {
		return s.reason + "; the source was in use, so a snapshot of it is read"
	}
	return s.reason
}

// Again returns when to check again if no event will trigger it; zero if one will.
func (s *Seen) Again() time.Duration {
	ofSnapshot := s.found.GroupKind() == snapshotKind
	switch s.Origin() {
	case volume.Forbidden: // there is no watch for a right that is granted later
		return refusedEvery
	case volume.Busy: // a volume that names its source by a reference is not told when the pod ends
		return refusedEvery
	case volume.Missing:
		if ofSnapshot || s.resolved.Backup != nil { // nothing tells of the claim that is to hold the backups
			return refusedEvery
		}
	case volume.Unfilled:
		if ofSnapshot {
			return snapshotEvery
		}
	case volume.Preparing, volume.Restoring: // what is restored may be in a namespace that we are not told of
		return snapshotEvery
	case volume.Usable, volume.Unfit, volume.Unready, volume.Replaced, volume.Misplaced, volume.Beside, volume.Larger:
	}
	return 0
}

var snapshotKind = volumesnapshot.GroupVersion.WithKind(volumesnapshot.Kind).GroupKind()
