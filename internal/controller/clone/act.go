package clone

import (
	"context"
	"fmt"
	"math"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// Act carries out one of the actions that are about a clone's source. Each may be repeated.
func (c *Cloner) Act(ctx context.Context, a volume.Action, s *Seen) error {
	switch a { //nolint:exhaustive // the others are about the claim, and its filler's
	case volume.PlaceClaim:
		return c.placeClaim(ctx, s)
	case volume.TakeSnapshot:
		return c.takeSnapshot(ctx, s)
	case volume.RestoreOrigin:
		return c.restoreOrigin(ctx, s)
	case volume.StartServer:
		return c.startServer(ctx, s)
	case volume.CleanUp:
		return c.cleanUp(ctx, s)
	}
	return fmt.Errorf("nobody knows how to %s", a)
}

// cleanUp removes the objects that only the transfer needed. Reading the cache is cheap, so it runs whenever a volume is complete
// or has failed permanently.
func (c *Cloner) cleanUp(ctx context.Context, s *Seen) error {
	if s.resolved.Source == nil {
		return nil
	}
	if !s.IsClone() { // a user may have given it our finalizer all the same
		s.at.Namespace = s.order.Namespace
	}
	if err := c.DropSnapshot(ctx, s); err != nil {
		return err
	}
	return c.removeAids(ctx, s)
}

// Measure returns the facts about the source that the claim's size depends on, with name for messages; nil if none are known.
func (s *Seen) Measure(name string) *claim.Source {
	if s.originFact() != clone.Found {
		return nil
	}
	m := s.found.Measure()
	if m != nil {
		m.Name = name
	}
	return m
}

// Disk returns the possible size of the disk in the source; 0 if nothing is cloned.
func (s *Seen) Disk() int64 {
	if s.originFact() != clone.Found {
		return 0
	}
	return s.found.Disk()
}

// DataSource returns what the claim's driver is to make it from; nil: it is to make an empty one.
func (s *Seen) DataSource() *corev1.TypedLocalObjectReference {
	switch s.strategy {
	case clone.CSIClone:
		return &corev1.TypedLocalObjectReference{Kind: s.at.Kind, Name: s.at.Name}
	case clone.Snapshot:
		return volumesnapshot.Source(s.readSnapshot())
	case clone.Copy, clone.Stream, clone.Impossible:
	}
	return nil
}

// Mark records, on a claim that is about to be made, what it is cloned from and how: what it inherits, what clients read, and the
// node to make it on.
func (s *Seen) Mark(c *corev1.PersistentVolumeClaim) {
	labels := s.resolved
	if s.originFact() == clone.Found {
		labels.Inherit(s.found.Labels())
	}
	for key, value := range labels.Labels {
		if _, own := c.Labels[key]; !own {
			c.Labels[key] = value
		}
	}
	if s.strategy == clone.Impossible {
		return
	}
	c.Annotations[names.CloneType], c.Annotations[names.CloneWay] = string(s.strategy.Known()), string(s.strategy)
	c.Annotations[names.CloneWhy] = s.reason
	if s.fellBack {
		c.Annotations[names.CloneBack] = s.reason
	}
	if !s.grows(c) {
		c.Annotations[names.CloneSize] = names.CloneSizeKept
	}
	if c.Spec.DataSource == nil {
		return
	}
	if source := s.found.Claim; source != nil && source.Annotations[names.DiskSize] != "" {
		c.Annotations[names.DiskSize] = source.Annotations[names.DiskSize] // what its driver will copy
	}
	if s.where.Beside != "" && !claim.Waits(s.target.Class) {
		c.Annotations[names.SelectedNode] = s.where.Beside
	}
}

// grows reports whether the claim asks for more room than the source's claim did, and for more than the source's disk needs. Only
// then the clone's disk is made larger; else it has the very bytes of its source.
func (s *Seen) grows(c *corev1.PersistentVolumeClaim) bool {
	if asked := s.order.asked(); asked.IsZero() {
		return false // the size was taken from the source
	}
	wanted := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if had := s.found.Requested(); wanted.Cmp(had) <= 0 {
		return false
	}
	if s.target.Block || s.block() {
		return true // between a device and a file sizes differ by what a filesystem takes
	}
	disk := s.found.Disk()
	needs, err := claim.FilesystemOf(s.target.Class).Inflate(disk, claim.OverheadOf(&s.target.Settings.Overhead, ptr.Deref(c.Spec.StorageClassName, "")))
	return disk == math.MaxInt64 || err != nil || wanted.Value() > needs
}

// asked returns the size that the order asks for; zero: it leaves it open.
func (o *Order) asked() resource.Quantity {
	switch {
	case o.Spec.Storage != nil:
		return o.Spec.Storage.Resources.Requests[corev1.ResourceStorage]
	case o.Spec.PVC != nil:
		return o.Spec.PVC.Resources.Requests[corev1.ResourceStorage]
	}
	return resource.Quantity{}
}

// Content returns what a worker copies: the whole volume where source and clone are filesystems, else the disk. otherwise is for
// volumes that are no clones, and for those that no worker copies.
func (s *Seen) Content(otherwise task.Content) task.Content {
	from := s.reads()
	if s.strategy != clone.Copy && s.strategy != clone.Stream || from == nil || s.target.Block || isBlock(from.Spec.VolumeMode) {
		return otherwise
	}
	return task.Volume
}

// Reading is the source that a worker reads a clone from.
type Reading struct {
	render.Origin
	Disk *render.Disk // the claim it needs besides its target; nil: none
	Peer *render.Peer // the server it reads from; nil: none
	// Home selects the nodes where the worker has to run, if it may be the first consumer of a claim that must be on the source's
	// node; nil: any node.
	Home *corev1.NodeSelector
}

// Worked reports whether a worker reads the source and writes the clone; otherwise the storage does. While there is a worker
// nothing is chosen again, and the claim says how it is made.
func (s *Seen) Worked() bool {
	way := s.strategy
	if c := s.target.Claim; !s.chosen && c != nil {
		way = clone.Strategy(c.Annotations[names.CloneWay])
	}
	return way == clone.Copy || way == clone.Stream
}

// Reads returns the source that a worker of the clone reads. If the driver fills the claim the worker reads nothing: it exists to
// be scheduled with the claim, on the source's node.
func (s *Seen) Reads() Reading {
	switch s.strategy {
	case clone.Copy:
		from := s.reads()
		disk := &render.Disk{Claim: from.Name, Block: isBlock(from.Spec.VolumeMode)}
		local := &task.Local{Path: disk.SourcePath(task.Disk), Raw: true}
		return Reading{Origin: render.Origin{Source: task.Source{Local: local}}, Disk: disk, Home: s.home}
	case clone.Stream:
		peer := &task.Peer{URL: "https://" + net.JoinHostPort(peerName, strconv.Itoa(servePort)), TLSDir: render.TLSDir}
		return Reading{
			Origin: render.Origin{Source: task.Source{Peer: peer}, Secrets: []render.Secret{{Name: s.order.clientKeys(), Dir: render.TLSDir}}},
			Peer:   &render.Peer{Name: peerName, IP: s.server.Status.PodIP},
		}
	case clone.CSIClone, clone.Snapshot, clone.Impossible:
	}
	return Reading{Home: s.home}
}
