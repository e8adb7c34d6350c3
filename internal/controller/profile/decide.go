// Package profile keeps one StorageProfile per StorageClass: what is known of the class for virtual machines' disks, so that a
// claim need not say it. What an administrator wrote into the profile's spec wins; otherwise it comes from the table of
// provisioners in pkg/claim, and for volumes made manually from the class's own PersistentVolumes.
//
// It completes no claim and clones nothing: profiles are read by those who do.
package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// CloneStrategyAnnotation on a StorageClass says how its volumes are best cloned: copy, snapshot or csi-clone.
const CloneStrategyAnnotation = "cdi.kubevirt.io/clone-strategy"

// Reasons of the condition Recognized.
const (
	RecognizedProvisioner   = "RecognizedProvisioner"
	RecognizedVolumes       = "RecognizedVolumes"
	NoVolumes               = "NoVolumes"
	UnrecognizedProvisioner = "UnrecognizedProvisioner"
)

const maxSets = 8 // of a profile, says its schema

// seen is everything the decision depends on.
type seen struct {
	class     *storagev1.StorageClass // nil: there is none of this name (any more)
	profile   *cdiv1.StorageProfile   // nil: there is none yet
	volumes   []corev1.PersistentVolume
	snapshots []volumesnapshot.Class
	now       metav1.Time
}

// plan has at most one of the two set.
type plan struct {
	remove bool
	want   *cdiv1.StorageProfile // labels, annotations and status; the spec is the administrator's
}

// decide is pure.
func decide(s seen) plan {
	if s.class == nil {
		// A profile without our labels was written ahead of its class and waits for it.
		return plan{remove: s.profile != nil && managed(s.profile)}
	}
	traits, known := claim.Recognize(s.class)
	if s.class.Provisioner == claim.NoProvisioner {
		traits.Sets = fromVolumes(s.volumes, s.class.Name)
	}
	var spec cdiv1.StorageProfileSpec
	want := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: s.class.Name, Labels: labels()}}
	if s.profile != nil {
		spec = s.profile.Spec
		want.UID = s.profile.UID
	}
	if least := leastSize(s.profile, traits); least != "" {
		want.Annotations = map[string]string{claim.MinimumSizeAnnotation: least}
	}
	want.Status = cdiv1.StorageProfileStatus{
		StorageClass:               &s.class.Name,
		Provisioner:                &s.class.Provisioner,
		ClaimPropertySets:          spec.ClaimPropertySets,
		CloneStrategy:              cloneStrategy(spec, s.class, traits),
		DataImportCronSourceFormat: sourceFormat(spec, traits),
		SnapshotClass:              chooseSnapshotClass(spec, s),
	}
	if len(spec.ClaimPropertySets) == 0 {
		want.Status.ClaimPropertySets = traits.Sets
	}
	want.Status.Conditions = []cdiv1.StorageProfileCondition{recognized(s, known, traits, spec)}
	return plan{want: want}
}

func labels() map[string]string {
	return map[string]string{"app": "containerized-data-importer", "cdi.kubevirt.io": ""}
}

func managed(p *cdiv1.StorageProfile) bool {
	_, ours := p.Labels["cdi.kubevirt.io"]
	return ours
}

// fromVolumes derives from a class's volumes how they can be used: one set per combination of volume mode and access mode, best
// first. Volumes that can only be read are no place for a disk, and failed ones are no place for anything.
func fromVolumes(volumes []corev1.PersistentVolume, class string) []cdiv1.ClaimPropertySet {
	var sets []cdiv1.ClaimPropertySet
	for i := range volumes {
		v := &volumes[i]
		if v.Spec.StorageClassName != class || v.Status.Phase == corev1.VolumeFailed || v.DeletionTimestamp != nil {
			continue
		}
		mode := corev1.PersistentVolumeFilesystem
		if v.Spec.VolumeMode != nil {
			mode = *v.Spec.VolumeMode
		}
		for _, access := range v.Spec.AccessModes {
			set := cdiv1.ClaimPropertySet{AccessModes: []corev1.PersistentVolumeAccessMode{access}, VolumeMode: &mode}
			if access != corev1.ReadOnlyMany && !slices.ContainsFunc(sets, func(s cdiv1.ClaimPropertySet) bool {
				return rank(s) == rank(set)
			}) {
				sets = append(sets, set)
			}
		}
	}
	slices.SortFunc(sets, func(a, b cdiv1.ClaimPropertySet) int { return cmp.Compare(rank(a), rank(b)) })
	return sets[:min(len(sets), maxSets)]
}

// rank orders sets of one access mode: Block before Filesystem, then the mode that allows most.
func rank(s cdiv1.ClaimPropertySet) int {
	order := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	r := slices.Index(order, s.AccessModes[0])
	if *s.VolumeMode != corev1.PersistentVolumeBlock {
		r += len(order)
	}
	return r
}

// leastSize returns the provisioner's least size, unless the profile has one that an administrator chose.
func leastSize(p *cdiv1.StorageProfile, t claim.Traits) string {
	if p == nil {
		return t.Least
	}
	have, err := resource.ParseQuantity(p.Annotations[claim.MinimumSizeAnnotation])
	if err == nil && t.Least != "" && have.Cmp(resource.MustParse(t.Least)) != 0 {
		return ""
	}
	return t.Least
}

func cloneStrategy(spec cdiv1.StorageProfileSpec, class *storagev1.StorageClass, t claim.Traits) *cdiv1.CDICloneStrategy {
	if spec.CloneStrategy != nil {
		return spec.CloneStrategy
	}
	switch s := cdiv1.CDICloneStrategy(class.Annotations[CloneStrategyAnnotation]); s {
	case cdiv1.CloneStrategyHostAssisted, cdiv1.CloneStrategySnapshot, cdiv1.CloneStrategyCsiClone:
		return &s
	}
	if t.Clone != "" {
		return &t.Clone
	}
	return nil // a clone uses a snapshot if the class has snapshots, and copies otherwise
}

func sourceFormat(spec cdiv1.StorageProfileSpec, t claim.Traits) *cdiv1.DataImportCronSourceFormat {
	if spec.DataImportCronSourceFormat != nil {
		return spec.DataImportCronSourceFormat
	}
	format := cmp.Or(t.Cron, cdiv1.DataImportCronSourceFormatPvc)
	return &format
}

// chooseSnapshotClass takes the administrator's, else the default one of the same driver, else the first by name.
func chooseSnapshotClass(spec cdiv1.StorageProfileSpec, s seen) *string {
	if spec.SnapshotClass != nil {
		return spec.SnapshotClass
	}
	if name := volumesnapshot.Choose(s.snapshots, s.class.Provisioner, ""); name != "" {
		return &name
	}
	return nil
}

func recognized(s seen, known bool, t claim.Traits, spec cdiv1.StorageProfileSpec) cdiv1.StorageProfileCondition {
	c := cdiv1.StorageProfileCondition{Type: cdiv1.StorageProfileRecognized}
	c.Status = corev1.ConditionTrue
	var message strings.Builder
	switch {
	case known && len(t.Sets) > 0 && s.class.Provisioner == claim.NoProvisioner:
		c.Reason = RecognizedVolumes
		fmt.Fprintf(&message, "%d of the access and volume modes of the class's PersistentVolumes are offered", len(t.Sets))
	case known && len(t.Sets) > 0:
		c.Reason = RecognizedProvisioner
		fmt.Fprintf(&message, "Provisioner %s is known", s.class.Provisioner)
	case known:
		c.Status, c.Reason = corev1.ConditionFalse, NoVolumes
		message.WriteString("The class has no PersistentVolume yet that says how its volumes can be used")
	default:
		c.Status, c.Reason = corev1.ConditionFalse, UnrecognizedProvisioner
		fmt.Fprintf(&message, "Nothing is known of provisioner %s with these parameters", s.class.Provisioner)
	}
	switch {
	case len(spec.ClaimPropertySets) > 0:
		message.WriteString("; spec.claimPropertySets counts")
	case c.Status == corev1.ConditionFalse:
		message.WriteString("; write spec.claimPropertySets, or accessModes and volumeMode into every claim of this class")
	}
	c.Message = message.String()
	c.LastTransitionTime, c.LastHeartbeatTime = s.now, s.now
	if s.profile == nil {
		return c
	}
	for _, old := range s.profile.Status.Conditions {
		if old.Type == c.Type && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
			if old.Reason == c.Reason && old.Message == c.Message {
				c.LastHeartbeatTime = old.LastHeartbeatTime
			}
		}
	}
	return c
}
