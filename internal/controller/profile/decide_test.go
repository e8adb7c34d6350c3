package profile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

var (
	then = metav1.NewTime(time.Unix(1e9, 0))
	now  = metav1.NewTime(time.Unix(2e9, 0))
)

const (
	rwo, rwx    = corev1.ReadWriteOnce, corev1.ReadWriteMany
	block, file = corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
)

func set(access corev1.PersistentVolumeAccessMode, mode corev1.PersistentVolumeMode) cdiv1.ClaimPropertySet {
	return cdiv1.ClaimPropertySet{AccessModes: []corev1.PersistentVolumeAccessMode{access}, VolumeMode: &mode}
}

func class(provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: provisioner}
}

func profile(spec cdiv1.StorageProfileSpec) *cdiv1.StorageProfile {
	return &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: labels()}, Spec: spec}
}

func volume(class string, mode corev1.PersistentVolumeMode, phase corev1.PersistentVolumePhase,
	access ...corev1.PersistentVolumeAccessMode) corev1.PersistentVolume {
	v := corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: class, AccessModes: access}}
	v.Status.Phase = phase
	if mode != "" {
		v.Spec.VolumeMode = &mode
	}
	return v
}

func TestDecideStatus(t *testing.T) {
	annotated := func(value string) *storagev1.StorageClass {
		c := class("rancher.io/local-path")
		c.Annotations = map[string]string{CloneStrategyAnnotation: value}
		return c
	}
	snapshots := func(name, driver string, isDefault bool) volumesnapshot.Class {
		c := volumesnapshot.Class{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver}
		if isDefault {
			c.Annotations = map[string]string{"snapshot.storage.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	snapshotClasses := []volumesnapshot.Class{
		snapshots("a-other", "example.com/tape", true), snapshots("z", "rbd.csi.ceph.com", false), snapshots("m", "rbd.csi.ceph.com", false),
	}
	rbd := []cdiv1.ClaimPropertySet{set(rwx, block), set(rwo, block), set(rwo, file)}
	const unknown = "; write spec.claimPropertySets, or accessModes and volumeMode into every claim of this class"
	for name, row := range map[string]struct {
		seen      seen
		sets      []cdiv1.ClaimPropertySet
		clone     cdiv1.CDICloneStrategy
		format    cdiv1.DataImportCronSourceFormat
		snapshots string
		condition string
	}{
		"a known provisioner": {
			seen: seen{class: class("rbd.csi.ceph.com")}, sets: rbd, clone: "csi-clone", format: "snapshot",
			condition: "True RecognizedProvisioner: Provisioner rbd.csi.ceph.com is known",
		},
		"an unknown provisioner": {
			seen: seen{class: class("example.com/tape")}, format: "pvc",
			condition: "False UnrecognizedProvisioner: Nothing is known of provisioner example.com/tape with these parameters" + unknown,
		},
		"the administrator knows better": {
			seen: seen{class: class("rbd.csi.ceph.com"), snapshots: snapshotClasses, profile: profile(cdiv1.StorageProfileSpec{
				ClaimPropertySets: []cdiv1.ClaimPropertySet{set(rwo, file)}, SnapshotClass: ptr.To("special"),
				CloneStrategy: ptr.To(cdiv1.CloneStrategyHostAssisted), DataImportCronSourceFormat: ptr.To(cdiv1.DataImportCronSourceFormatPvc),
			})},
			sets: []cdiv1.ClaimPropertySet{set(rwo, file)}, clone: "copy", format: "pvc", snapshots: "special",
			condition: "True RecognizedProvisioner: Provisioner rbd.csi.ceph.com is known; spec.claimPropertySets counts",
		},
		"the administrator knows something": {
			seen: seen{class: class("example.com/tape"), profile: profile(cdiv1.StorageProfileSpec{
				ClaimPropertySets: []cdiv1.ClaimPropertySet{set(rwo, file)}})},
			sets: []cdiv1.ClaimPropertySet{set(rwo, file)}, format: "pvc",
			condition: "False UnrecognizedProvisioner: Nothing is known of provisioner example.com/tape with these parameters; " +
				"spec.claimPropertySets counts",
		},
		"a clone strategy on the class": {
			seen: seen{class: annotated("snapshot")}, sets: []cdiv1.ClaimPropertySet{set(rwo, file)}, clone: "snapshot", format: "pvc",
			condition: "True RecognizedProvisioner: Provisioner rancher.io/local-path is known",
		},
		"a clone strategy nobody knows": {
			seen: seen{class: annotated("magic")}, sets: []cdiv1.ClaimPropertySet{set(rwo, file)}, clone: "copy", format: "pvc",
			condition: "True RecognizedProvisioner: Provisioner rancher.io/local-path is known",
		},
		"snapshot classes, none default": {
			seen: seen{class: class("rbd.csi.ceph.com"), snapshots: snapshotClasses},
			sets: rbd, clone: "csi-clone", format: "snapshot", snapshots: "m",
			condition: "True RecognizedProvisioner: Provisioner rbd.csi.ceph.com is known",
		},
		"snapshot classes, one default": {
			seen: seen{class: class("rbd.csi.ceph.com"),
				snapshots: append(snapshotClasses, snapshots("zz", "rbd.csi.ceph.com", true))},
			sets: rbd, clone: "csi-clone", format: "snapshot", snapshots: "zz",
			condition: "True RecognizedProvisioner: Provisioner rbd.csi.ceph.com is known",
		},
		"volumes made by hand": {
			seen: seen{class: class(claim.NoProvisioner), volumes: []corev1.PersistentVolume{
				volume("c", "", corev1.VolumeAvailable, rwo), volume("c", block, corev1.VolumeBound, rwo, corev1.ReadOnlyMany),
				volume("c", file, corev1.VolumeAvailable, rwo, rwx), volume("other", block, corev1.VolumeAvailable, rwx),
				volume("c", block, corev1.VolumeFailed, rwx), volume("c", block, corev1.VolumeAvailable, corev1.ReadWriteOncePod),
			}},
			sets:  []cdiv1.ClaimPropertySet{set(rwo, block), set(corev1.ReadWriteOncePod, block), set(rwx, file), set(rwo, file)},
			clone: "copy", format: "pvc",
			condition: "True RecognizedVolumes: 4 of the access and volume modes of the class's PersistentVolumes are offered",
		},
		"no volumes yet": {
			seen: seen{class: class(claim.NoProvisioner)}, clone: "copy", format: "pvc",
			condition: "False NoVolumes: The class has no PersistentVolume yet that says how its volumes can be used" + unknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.seen.now = now
			p := decide(row.seen)
			if p.remove || p.want == nil {
				t.Fatalf("got %+v", p)
			}
			got := p.want.Status
			condition := got.Conditions[0]
			want := cdiv1.StorageProfileStatus{
				StorageClass: ptr.To("c"), Provisioner: &row.seen.class.Provisioner, ClaimPropertySets: row.sets,
				DataImportCronSourceFormat: &row.format, Conditions: got.Conditions,
			}
			if row.clone != "" {
				want.CloneStrategy = &row.clone
			}
			if row.snapshots != "" {
				want.SnapshotClass = &row.snapshots
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if said := string(condition.Status) + " " + condition.Reason + ": " + condition.Message; said != row.condition {
				t.Errorf("condition\n got %s\nwant %s", said, row.condition)
			}
			// A second look finds nothing to write.
			again := row.seen
			again.profile = p.want.DeepCopy()
			if row.seen.profile != nil {
				again.profile.Spec = row.seen.profile.Spec
			}
			again.now = metav1.NewTime(now.Add(time.Hour))
			if diff := cmp.Diff(p.want, decide(again).want); diff != "" {
				t.Errorf("a second look changed something (-first +second):\n%s", diff)
			}
		})
	}
}

func TestDecideRemoval(t *testing.T) {
	foreign := profile(cdiv1.StorageProfileSpec{})
	foreign.Labels = nil
	for name, row := range map[string]struct {
		seen   seen
		remove bool
	}{
		"neither class nor profile":            {seen{}, false},
		"the class is gone":                    {seen{profile: profile(cdiv1.StorageProfileSpec{})}, true},
		"a profile written ahead of its class": {seen{profile: foreign}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(row.seen); got.remove != row.remove || got.want != nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestDecideLeastSize(t *testing.T) {
	carrying := func(size string) *cdiv1.StorageProfile {
		p := profile(cdiv1.StorageProfileSpec{})
		p.Annotations = map[string]string{claim.MinimumSizeAnnotation: size}
		return p
	}
	for name, row := range map[string]struct {
		profile *cdiv1.StorageProfile
		want    string
	}{
		"new":                  {nil, "50Gi"},
		"as we wrote it":       {carrying("50Gi"), "50Gi"},
		"somebody's own value": {carrying("60Gi"), ""},
		"nonsense":             {carrying("lots"), "50Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(seen{class: class("blockvolume.csi.oraclecloud.com"), profile: row.profile}).want.Annotations
			if got[claim.MinimumSizeAnnotation] != row.want {
				t.Errorf("got %q, want %q", got[claim.MinimumSizeAnnotation], row.want)
			}
		})
	}
}

func TestConditionKeepsItsTime(t *testing.T) {
	first := decide(seen{class: class(claim.NoProvisioner), now: then}).want
	s := seen{class: class(claim.NoProvisioner), profile: first, now: now,
		volumes: []corev1.PersistentVolume{volume("c", block, corev1.VolumeAvailable, rwo)}}
	if got := decide(s).want.Status.Conditions[0].LastTransitionTime; got != now {
		t.Errorf("the condition turned true at %v, want %v", got, now)
	}
}

// TestOffersOther: a class is checked again when one of its volumes can be used in another way, not when one is used.
func TestOffersOther(t *testing.T) {
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "made-by-hand", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}}
		if change != nil {
			change(v)
		}
		return v
	}
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolume)
		want   bool
	}{
		"nothing":  {nil, false},
		"bound":    {func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }, false},
		"failed":   {func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeFailed }, true},
		"deleted":  {func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &now }, true},
		"shared":   {func(v *corev1.PersistentVolume) { v.Spec.AccessModes[0] = rwx }, true},
		"a device": {func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(block) }, true},
		"moved":    {func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "other" }, true},
	} {
		if got := offersOther().Update(event.UpdateEvent{ObjectOld: volume(nil), ObjectNew: volume(c.change)}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
