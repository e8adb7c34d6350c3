package clone

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	reach "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Find reads the source of a clone, as far as the claim's size depends on it. For a volume that is not a clone it returns the
// source that fills it.
func (c *Cloner) Find(ctx context.Context, o Order, t Target) (Seen, error) {
	s := Seen{order: o, target: t, now: c.clock.Now()}
	var err error
	if s.resolved, err = clonesource.Resolve(ctx, c.objects, o.Namespace, o.Spec); err != nil {
		return s, err
	}
	var cloned bool
	if s.at, cloned = clonesource.OfSource(o.Namespace, s.resolved.Source); !cloned || s.resolved.Lacks != "" {
		s.decide()
		return s, nil
	}
	switch {
	case s.made() && s.acrossSpaces() && t.Claim.Spec.VolumeName != "":
		// A driver clones within a namespace, so this claim is none that we made.
	case s.made() && t.Claim.Spec.VolumeName == "":
		err = c.observeMade(ctx, &s)
	case s.made(), t.Recorded:
		err = c.observeAids(ctx, &s)
	default:
		err = c.find(ctx, &s)
	}
	if err != nil {
		return s, err
	}
	s.decide()
	return s, nil
}

// made reports whether the claim was made for its driver to fill. Of a claim that names one of our sources, the API server writes
// that as its data source too.
func (s *Seen) made() bool {
	c := s.target.Claim
	return c != nil && c.Spec.DataSource != nil && !clonesource.PopulatedByUs(c)
}

// find reads the source, if the volume may be cloned from it.
func (c *observer) find(ctx context.Context, s *Seen) error {
	if s.at.Namespace != s.order.Namespace && !s.order.Allowed {
		target := token.Object{Namespace: s.order.Namespace, Name: s.order.Name}
		err := clonesource.Authorized(ctx, c.tokens, s.order.Annotations[token.Annotation], s.at, target, s.order.Spec.SourceRef)
		if errors.Is(err, clonesource.ErrForbidden) {
			s.denied = err
			return nil
		}
		if err != nil {
			return err
		}
	}
	var err error
	if s.found, err = clonesource.Find(ctx, c.objects, s.at); err != nil {
		return err
	}
	if s.found.Claim == nil || s.found.Lacks() != "" {
		return nil
	}
	if class := ptr.Deref(s.found.Claim.Spec.StorageClassName, ""); class != "" {
		s.class, err = cluster.Get[storagev1.StorageClass](ctx, c.reader, "", class)
	}
	return err
}

// observeMade reads what a claim depends on that its driver is to fill. A claim that was restored from a backup names another source than
// the volume, and its driver fills it with that one.
func (c *observer) observeMade(ctx context.Context, s *Seen) error {
	if !s.restoredFromBackup() {
		found, err := clonesource.Find(ctx, c.objects, s.at)
		if err != nil {
			return err
		}
		if found.Snapshot == nil && s.at.GroupKind() == clonesource.Claim.GroupKind() && s.target.Claim.Spec.DataSource.Kind == clonesource.Claim.Kind {
			s.lost = lost(found.Claim)
		}
		if s.lost != "" {
			return nil
		}
		return c.observePlace(ctx, s, found)
	}
	found, err := clonesource.DriverSource(ctx, c.objects, s.target.Claim)
	if err != nil {
		return err
	}
	return c.observePlace(ctx, s, found)
}

// restoredFromBackup reports whether we did not make the claim for its driver to fill. We make none of a source in another namespace, where a
// driver cannot clone from; what is there is not for the claim's author to know.
func (s *Seen) restoredFromBackup() bool {
	own := s.target.Claim.Spec.DataSource
	ofSource := s.at.GroupKind() == clonesource.Snapshot.GroupKind() && own.Name == s.at.Name
	return s.acrossSpaces() || own.Kind == volumesnapshot.Kind && !isFrom(s.target.Claim, s.order.snapshotName()) && !ofSource
}

// lost returns why the claim that a driver should clone is gone. The clone would be made of whatever has the name now, so it is
// made again when the source is complete again.
func lost(c *corev1.PersistentVolumeClaim) string {
	if c == nil {
		return "its source is gone"
	}
	if proof, lacks := clonesource.Complete(c); proof == clonesource.Unproven {
		return "its source is another by now: " + lacks
	}
	return ""
}

// Observe reads the rest of the facts about the clone, and decides.
func (c *Cloner) Observe(ctx context.Context, s *Seen, t Target) error {
	t.Recorded, t.Grown = s.target.Recorded, s.target.Grown // as it was when the source was looked for
	s.target = t
	if s.IsClone() && s.resolved.Lacks == "" && !s.made() && !t.Recorded && s.denied == nil && s.found.There() && s.found.Lacks() == "" &&
		!t.Vague {
		if err := c.observeRest(ctx, s); err != nil {
			return err
		}
	}
	s.decide()
	return nil
}

// observeRest reads what the choice depends on; if there is a worker already, only whether that can ever run.
func (c *observer) observeRest(ctx context.Context, s *Seen) error {
	if s.target.Worker == nil {
		s.chosen = true
		return c.observeChoice(ctx, s)
	}
	if err := c.observeWritten(ctx, s); err != nil {
		return err
	}
	if readsFrom(s.target.Worker) != "" {
		return c.observeServer(ctx, s)
	}
	if no, _ := pods.Unplaceable(s.target.Worker); !no || !readsBeside(s.target.Worker, s.target.Claim.Name) {
		return nil
	}
	if err := c.observeApart(ctx, s); err != nil {
		return err
	}
	s.stranded = s.apart
	return nil
}

// observeServer reads what a worker reads from that is there already, and where that can be served again.
func (c *observer) observeServer(ctx context.Context, s *Seen) error {
	err := c.observeAids(ctx, s)
	if err != nil {
		return err
	}
	s.asked = true
	s.home, err = c.home(ctx, s)
	return err
}

// readsBeside reports whether a worker has another claim than the one it fills, which it reads.
func readsBeside(worker *corev1.Pod, own string) bool {
	return slices.ContainsFunc(worker.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName != own
	})
}

// Stranded reports whether the worker can never run: it was made to read the source on its own node before it was known that
// source and claim are on different nodes.
func (s *Seen) Stranded() bool { return s.stranded }

// observeApart finds out where the source and the claim's volume are.
func (c *observer) observeApart(ctx context.Context, s *Seen) error {
	err := c.observeAids(ctx, s)
	if err != nil {
		return err
	}
	if s.home, err = c.home(ctx, s); err != nil {
		return err
	}
	s.apart, err = c.apart(ctx, s)
	return err
}

// observeChoice reads what the choice of a strategy, and its next step, depend on.
func (c *observer) observeChoice(ctx context.Context, s *Seen) error {
	var err error
	if s.target.Claim != nil {
		if err := c.observeApart(ctx, s); err != nil {
			return err
		}
	} else if err := c.observePlace(ctx, s, s.found); err != nil {
		return err
	}
	if s.user, err = c.userOf(ctx, s); err != nil {
		return err
	}
	if err := c.observeClasses(ctx, s); err != nil {
		return err
	}
	if s.found.Claim != nil && (s.classes.source != "" || s.classes.target != "") {
		if s.taken, err = volumesnapshot.Read(ctx, c.objects, s.at.Namespace, s.order.snapshotName()); err != nil {
			return err
		}
	}
	s.readable, err = c.restoredReady(ctx, s.restored)
	return err
}

// observeClasses finds out what the storage can do.
func (c *observer) observeClasses(ctx context.Context, s *Seen) error {
	class := s.target.Class
	if class != nil {
		driver, err := cluster.Get[storagev1.CSIDriver](ctx, c.reader, "", class.Provisioner)
		if err != nil {
			return err
		}
		s.driver = driver != nil
		profile, err := cluster.Get[cdiv1.StorageProfile](ctx, c.reader, "", class.Name)
		if err != nil {
			return err
		}
		s.wish = s.target.Settings.CloneStrategyOverride
		if profile != nil && s.wish == nil {
			s.wish = profile.Status.CloneStrategy
		}
	}
	var err error
	if s.found.Snapshot != nil {
		s.restores, err = c.restoreClass(ctx, s)
		if err != nil {
			return err
		}
	}
	if s.driver {
		if s.classes.target, err = volumesnapshot.ClassOf(ctx, c.objects, class); err != nil {
			return err
		}
	}
	s.classes.source = s.classes.target
	if s.class == nil || class == nil || s.class.Name != class.Name || !s.driver {
		s.classes.source, err = volumesnapshot.ClassOf(ctx, c.objects, s.class)
	}
	return err
}

// home returns where a clone's source can be used; nil if everywhere, or if that is unknown.
func (c *observer) home(ctx context.Context, s *Seen) (*corev1.NodeSelector, error) {
	if r := s.restored; r != nil && r.Spec.VolumeName != "" {
		return clonesource.Home(ctx, c.objects, r)
	}
	return s.found.Home(ctx, c.objects)
}

// apart reports whether no node reaches both the source and the claim's volume, so one pod cannot have both.
func (c *observer) apart(ctx context.Context, s *Seen) (bool, error) {
	if s.home == nil {
		return false, nil
	}
	pv, err := c.volumeOf(ctx, s.target.Claim)
	if err != nil || pv == nil {
		return false, err // the scheduler will place what is not placed yet beside the other
	}
	homes, err := nodeselect.In(ctx, c.reader, s.home)
	if err != nil {
		return false, err
	}
	for i := range homes {
		if reach.CheckNodeAffinity(pv, homes[i].Labels) == nil {
			return false, nil
		}
	}
	return true, nil
}

// volumeOf returns the volume that a claim holds; nil: it holds none. A volume that the cache does not have yet is asked for.
func (c *observer) volumeOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	pv, err := cluster.VolumeOf(ctx, c.reader, claim)
	if pv != nil || err != nil {
		return pv, err
	}
	return cluster.VolumeOf(ctx, c.live, claim)
}

func provisioner(c *storagev1.StorageClass) string {
	if c == nil {
		return ""
	}
	return strings.TrimSpace(c.Provisioner)
}

func isBlock(mode *corev1.PersistentVolumeMode) bool {
	return ptr.Deref(mode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}
