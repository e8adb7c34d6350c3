package admission

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/names"
)

// Annotations of a volume that say that its claim may be there already.
const (
	annAdopt        = names.Adopt
	annPopulatedFor = names.PopulatedFor
	annPrePopulated = names.PrePopulated
	annCheckStatic  = names.CheckStatic
)

var specPath = field.NewPath("spec")

// checkVolume judges a DataVolume.
func (l *lookup) checkVolume(ctx context.Context, before, after *cdiv1.DataVolume) (causes, error) {
	if before != nil {
		return checkVolumeUpdate(before, after), nil
	}
	c := checkVolumeSpec(&after.Spec, specPath)
	if len(after.Name) > validation.DNS1123SubdomainMaxLength {
		c.invalid(field.NewPath("metadata", "name"), "Name cannot be longer than %d characters", validation.DNS1123SubdomainMaxLength)
	}
	if after.Name == "" {
		return c, nil // the API server has yet to generate it
	}
	existing, err := l.claim(ctx, after.Namespace, after.Name)
	if err != nil || existing == nil {
		return c, err
	}
	settings, err := l.settings.Settings(ctx)
	if err != nil {
		return nil, err
	}
	if !mayTake(after, existing, settings.Enabled(config.DataVolumeClaimAdoption)) {
		c.invalid(field.NewPath("metadata", "name"), "Destination PVC %s/%s already exists", after.Namespace, after.Name)
	}
	return c, nil
}

// mayTake reports whether a volume may have a claim that was there before it.
func mayTake(v *cdiv1.DataVolume, existing *corev1.PersistentVolumeClaim, gate bool) bool {
	if existing.DeletionTimestamp != nil || existing.Annotations[annPopulatedFor] == v.Name || clonesource.ComesBack(existing, v.Name, &v.Spec) {
		return true
	}
	if clonesource.OfEarlierVolume(existing, v.Name, "") {
		return true // it waits until the claim has been garbage-collected, and takes nothing over. If the other is still there, the API server says so
	}
	_, pre := v.Annotations[annPrePopulated]
	_, static := v.Annotations[annCheckStatic]
	adopt, said := v.Annotations[annAdopt]
	if said {
		gate = adopt == "true"
	}
	return pre || static || gate
}

// checkVolumeUpdate refuses changes of the spec, except of the checkpoints.
func checkVolumeUpdate(before, after *cdiv1.DataVolume) causes {
	was, is := before.Spec.DeepCopy(), after.Spec.DeepCopy()
	was.Checkpoints, was.FinalCheckpoint, is.Checkpoints, is.FinalCheckpoint = nil, false, nil, false
	var c causes
	if immutable(after.DeletionTimestamp, equality.Semantic.DeepEqual(was, is)) {
		c.invalid(specPath, "Cannot update DataVolume Spec")
	}
	if !equality.Semantic.DeepEqual(before.Spec.Checkpoints, after.Spec.Checkpoints) {
		checkCheckpoints(after.Spec.Source, after.Spec.Checkpoints, after.Spec.ContentType == cdiv1.DataVolumeArchive, specPath.Child("checkpoints"), &c)
	}
	return c
}

// checkVolumeSpec judges a DataVolume's spec on its own, as it also stands in the template of a DataImportCron.
func checkVolumeSpec(s *cdiv1.DataVolumeSpec, at *field.Path) causes {
	var c causes
	archive := s.ContentType == cdiv1.DataVolumeArchive
	switch {
	case s.PVC == nil && s.Storage == nil:
		c.missing(at.Child("PVC"), "Missing Data volume PVC")
	case s.PVC != nil && s.Storage != nil:
		c.invalid(at.Child("PVC"), "Duplicate storage definition, both target storage and target pvc defined")
	case s.PVC != nil:
		checkTarget(target{
			name: "PVC", modes: s.PVC.AccessModes, volume: s.PVC.VolumeMode, resources: s.PVC.Resources, full: true, sized: true,
		}, archive, at.Child("pvc"), &c)
	default:
		checkTarget(target{
			name: "Storage", modes: s.Storage.AccessModes, volume: s.Storage.VolumeMode, resources: s.Storage.Resources,
			sized: !clones(s),
		}, archive, at.Child("storage"), &c)
	}
	checkOrigin(s, archive, at, &c)
	checkCheckpoints(s.Source, s.Checkpoints, archive, at.Child("checkpoints"), &c)
	return c
}

// clones reports whether the data, and so the size, comes from another claim or snapshot.
func clones(s *cdiv1.DataVolumeSpec) bool {
	return s.SourceRef != nil || s.Source != nil && (s.Source.PVC != nil || s.Source.Snapshot != nil)
}

// checkOrigin holds a volume to exactly one of: a source, a reference to one, a populator that is not ours.
func checkOrigin(s *cdiv1.DataVolumeSpec, archive bool, at *field.Path, c *causes) {
	external, agree := external(s)
	if !agree {
		c.invalid(at, "DataSourceRef and DataSource must match")
	}
	switch {
	case external && (s.Source != nil || s.SourceRef != nil):
		c.invalid(at, "External population is incompatible with Source and SourceRef")
	case !external && (s.Source == nil) == (s.SourceRef == nil):
		c.invalid(at, "Data volume should have either Source or SourceRef, or be externally populated")
	case s.SourceRef != nil:
		checkSourceRef(s.SourceRef, at.Child("sourceRef"), c)
	case s.Source != nil:
		checkSource(s.Source, archive, at.Child("source"), c)
	}
}

func checkSourceRef(r *cdiv1.DataVolumeSourceRef, at *field.Path, c *causes) {
	if r.Kind == "" {
		c.missing(at.Child("kind"), "Missing sourceRef kind")
	} else if r.Kind != cdiv1.DataVolumeDataSource && r.Kind != accessv1.VolumeBackupSourceKind {
		c.invalid(at.Child("kind"), "Unsupported sourceRef kind %s, currently only DataSource is supported", r.Kind)
	}
	if r.Kind == accessv1.VolumeBackupSourceKind && r.Namespace != nil && *r.Namespace != "" {
		c.invalid(at.Child("namespace"), "a VolumeBackupSource is beside the volume: leave the namespace out")
	}
	if r.Name == "" {
		c.missing(at.Child("name"), "Missing sourceRef name")
	}
}

// external returns whether a populator fills the claim by itself, and whether the two ways to name it agree.
func external(s *cdiv1.DataVolumeSpec) (is, agree bool) {
	var old *corev1.TypedLocalObjectReference
	var ref *corev1.TypedObjectReference
	if s.PVC != nil {
		old, ref = s.PVC.DataSource, s.PVC.DataSourceRef
	} else if s.Storage != nil {
		old, ref = s.Storage.DataSource, s.Storage.DataSourceRef
	}
	if old == nil || ref == nil {
		return old != nil || ref != nil, true
	}
	group := func(g *string) string {
		if g == nil {
			return ""
		}
		return *g
	}
	return true, group(old.APIGroup) == group(ref.APIGroup) && old.Kind == ref.Kind && old.Name == ref.Name
}

// target has the fields that spec.pvc and spec.storage have in common.
type target struct {
	name      string
	modes     []corev1.PersistentVolumeAccessMode
	volume    *corev1.PersistentVolumeMode
	resources corev1.VolumeResourceRequirements
	full      bool // access modes are required and exactly one
	sized     bool // the size is required
}

const leastSize = 1 << 20

var accessModes = []string{
	string(corev1.ReadOnlyMany), string(corev1.ReadWriteMany), string(corev1.ReadWriteOnce), string(corev1.ReadWriteOncePod),
}

func checkTarget(t target, archive bool, at *field.Path, c *causes) {
	if t.full && len(t.modes) == 0 {
		c.missing(at.Child("accessModes"), "Required value: at least 1 access mode is required")
	}
	if t.full && len(t.modes) > 1 {
		c.invalid(at.Child("accessModes"), "PVC multiple accessModes")
	}
	for _, mode := range t.modes {
		if !slices.Contains(accessModes, string(mode)) {
			c.invalid(at.Child("accessModes"), `Unsupported value: "%s": supported values: "%s"`, mode, strings.Join(accessModes, `", "`))
		}
	}
	switch size, ok := t.resources.Requests[corev1.ResourceStorage]; {
	case !ok && t.sized:
		c.missing(at.Child("resources", "requests", "size"), "%s size is missing", t.name)
	case ok && size.Sign() <= 0:
		c.invalid(at.Child("resources", "requests", "size"), "%s size can't be equal or less than zero", t.name)
	case ok && size.Value() < leastSize:
		c.invalid(at.Child("resources", "requests", "size"), "%s size should be at least 1MiB", t.name)
	}
	if archive && t.volume != nil && *t.volume == corev1.PersistentVolumeBlock {
		c.invalid(at.Child("volumeMode"), "contentType archive needs a filesystem: leave volumeMode out or set it to Filesystem")
	}
}
