package populate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/populate"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// Annotations of a target that say how it is populated.
const (
	annKind   = "cdi.kubevirt.io/storage.populator.kind"
	annPrime  = names.Prime
	annSource = "berth.dev/source"        // what a clone was begun with
	annImport = "berth.dev/import-source" // the spec of the VolumeImportSource that an import was begun with, until it is complete
	annLabels = "berth.dev/image-labels"  // which of its labels came with the image
	annWish   = "berth.dev/clone-type"    // how a clone is asked to be made; clients' own word for it is overwritten by how it is made
	annPhase  = "cdi.kubevirt.io/clonePhase"
)

// finalizer keeps a target until what its clone has in other namespaces is removed.
const finalizer = "cdi.kubevirt.io/clonePopulator"

// primeName returns the name clients know the claim by that is filled in the target's stead.
func primeName(target *corev1.PersistentVolumeClaim) string { return PrimeName(target.UID) }

// PrimeName returns the name of the claim that is filled in the stead of the claim with that UID.
func PrimeName(target types.UID) string { return "prime-" + string(target) }

// orderPrime returns the order for the prime: the target's own spec without what makes it wait.
func (s *seen) orderPrime() fill.Order {
	o := fill.Order{
		For: s.target, Owner: render.ClaimOwner(s.target), Finalizer: finalizer, Kept: s.marks,
		Namespace: s.target.Namespace, Name: primeName(s.target), UID: s.target.UID,
		// A backup has no use for what is only there while a claim is filled.
		Labels:      map[string]string{names.NoBackup: "true"},
		Annotations: s.primeAnnotations(),
		Spec:        s.source.spec,
		Placed:      !s.waits() || node(s.target) != "",
		Allowed:     s.source.fact == populate.Found,
		CloneType:   s.wish(),
	}
	maps.Copy(o.Labels, s.source.labels)
	spec := s.target.Spec.DeepCopy()
	spec.DataSource, spec.DataSourceRef, spec.VolumeName = nil, nil, ""
	o.Spec.PVC = spec
	return o
}

// wish returns the clone strategy that the target's author requested; "" for the cheapest, even if the class cannot do it.
func (s *seen) wish() clone.Strategy {
	asked, begun := s.target.Annotations[annWish]
	if _, made := s.target.Annotations[annPrime]; !made && !begun {
		asked = s.target.Annotations[names.CloneType]
	}
	switch way := clone.Strategy(asked); way {
	case clone.CSIClone, clone.Snapshot, clone.Copy:
		return way
	case clone.Stream, clone.Impossible:
	}
	return ""
}

// clonePhases are the clients' names for the phases of a clone that has no DataVolume.
var clonePhases = map[cdiv1.DataVolumePhase]string{
	cdiv1.SnapshotForSmartCloneInProgress: "Snapshot", cdiv1.CloneFromSnapshotSourceInProgress: "SnapshotClone",
	cdiv1.CSICloneInProgress: "CSIClone", cdiv1.CloneInProgress: "HostClone", cdiv1.RebindInProgress: "Rebind",
	cdiv1.Succeeded: "Succeeded", cdiv1.Failed: "Error",
}

// showPhase shows the progress of a clone on its target.
func (s *seen) showPhase(phase cdiv1.DataVolumePhase) {
	if !s.source.clones() {
		return
	}
	s.marks.Annotations[annPhase] = "Pending"
	if known, ok := clonePhases[phase]; ok {
		s.marks.Annotations[annPhase] = known
	}
}

// primeAnnotations returns the annotations of a target that matter to its prime and its worker.
func (s *seen) primeAnnotations() map[string]string {
	kept := map[string]string{}
	for _, key := range append(slices.Clone(names.PassedOn), names.SelectedNode, names.Retain, names.Immediate, names.Contents) {
		if key == names.SelectedNode && !s.waits() {
			continue // the provisioner's own note, not the scheduler's choice
		}
		if value, ok := s.target.Annotations[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

// marksOf returns the annotations of a target that this controller owns: the recorded start, and the annotations copied from its
// prime, if there is one.
func marksOf(s *seen) cluster.Marks {
	m := cluster.Marks{Annotations: map[string]string{}}
	for _, key := range append([]string{annKind, annPrime, annSource, annImport, annLabels, annWish, annPhase, names.PopulatedFor, names.MayFill, names.ServedOn, names.VolumeList}, cluster.ClaimAnnotations...) {
		if value, ok := s.target.Annotations[key]; ok {
			m.Annotations[key] = value
		}
	}
	shows := s.target
	if s.prime != nil {
		shows = s.prime
	}
	has, lacks := shown(shows)
	maps.Copy(m.Annotations, has)
	m.Gone = lacks
	if s.prime != nil && has[names.PodPhase] == string(corev1.PodSucceeded) {
		m.Annotations[names.PodPhase] = string(corev1.PodRunning) // the data is there, but not yet the target's
	}
	m.Labels = map[string]string{}
	if s.prime != nil {
		m.Labels = clonesource.ImageLabels(s.prime.Labels)
		if len(m.Labels) > 0 {
			m.Annotations[annLabels] = strings.Join(slices.Sorted(maps.Keys(m.Labels)), ",")
		}
	} else if keys := s.target.Annotations[annLabels]; keys != "" {
		for key := range strings.SplitSeq(keys, ",") {
			m.Labels[key] = s.target.Labels[key]
		}
	}
	if slices.Contains(s.target.Finalizers, finalizer) {
		m.Finalizers = []string{finalizer}
	}
	return m
}

// shownKeys are the annotations of a claim that clients read: the progress of its fill, and its content.
var shownKeys = []string{
	names.PodPhase, names.PodReady, names.Restarts, names.Fatal, names.RunMessage, names.RunReason, names.ImportPod, names.UploadPod, names.Preallocate, names.DiskSize, names.Uploaded,
	names.ContentType, names.CloneType, names.CloneBack, names.CloneWay,
}

// shown returns those annotations as a claim has them, and the ones it does not bear.
func shown(c *corev1.PersistentVolumeClaim) (has map[string]string, lacks []string) {
	has = map[string]string{}
	for _, key := range shownKeys {
		if value, ok := c.Annotations[key]; ok {
			has[key] = value
		} else {
			lacks = append(lacks, key)
		}
	}
	return has, lacks
}
