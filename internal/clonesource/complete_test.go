package clonesource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/names"
)

func bound(annotations map[string]string, owner *metav1.OwnerReference, ref *corev1.TypedObjectReference) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "disk", Annotations: annotations},
		Spec:       corev1.PersistentVolumeClaimSpec{DataSourceRef: ref},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	if owner != nil {
		c.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return c
}

// TestComplete: of a claim that we fill only a record proves that its data is there; a claim that Berth does not fill is complete
// when it is bound.
func TestComplete(t *testing.T) {
	owned := func(version, kind string) *metav1.OwnerReference {
		return &metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "disk", Controller: ptr.To(true)}
	}
	volume, machine := owned("cdi.kubevirt.io/v1beta1", "DataVolume"), owned("kubevirt.io/v1", "VirtualMachine")
	ours := &corev1.TypedObjectReference{APIGroup: ptr.To(cdiv1.SchemeGroupVersion.Group), Kind: "VolumeUploadSource", Name: "sent"}
	others := &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Image", Name: "a"}
	phase := func(p corev1.PodPhase) map[string]string { return map[string]string{AnnPodPhase: string(p)} }
	populated := map[string]string{AnnPopulatedFor: "disk"}
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  Proof
		lacks string
	}{
		"a bare claim":                             {bound(nil, nil, nil), Plain, ""},
		"a machine's own":                          {bound(nil, machine, nil), Plain, ""},
		"another populator's":                      {bound(nil, nil, others), Plain, ""},
		"a volume's, not begun":                    {bound(nil, volume, nil), Unproven, "DataVolume disk"},
		"a volume's, under way":                    {bound(phase(corev1.PodRunning), volume, nil), Unproven, "DataVolume disk"},
		"a volume's, refused for good":             {bound(phase(corev1.PodFailed), volume, nil), Unproven, "DataVolume disk"},
		"a volume's, given up":                     {bound(map[string]string{names.Fatal: "true"}, volume, nil), Unproven, "DataVolume disk has failed to fill it and does not try again"},
		"a volume's, done":                         {bound(phase(corev1.PodSucceeded), volume, nil), Transferred, ""},
		"a volume's, said to be populated":         {bound(populated, volume, nil), Unproven, "DataVolume disk"},
		"a volume's of another populator":          {bound(nil, volume, others), Unproven, "DataVolume disk"},
		"a prime":                                  {bound(nil, owned("v1", "PersistentVolumeClaim"), nil), Unproven, "PersistentVolumeClaim disk"},
		"a populated claim, bound too early":       {bound(nil, nil, ours), Unproven, "nothing records that it was filled from VolumeUploadSource sent"},
		"a populated claim, its prime full":        {bound(phase(corev1.PodRunning), nil, ours), Unproven, "nothing records"},
		"a populated claim of another data side":   {bound(phase(corev1.PodSucceeded), nil, ours), Populated, ""},
		"a populated claim":                        {bound(populated, nil, ours), Populated, ""},
		"a populated claim of a machine":           {bound(populated, machine, ours), Populated, ""},
		"an upload's, waiting":                     {bound(map[string]string{claimorder.Upload: ""}, nil, nil), Unproven, "an upload"},
		"an upload's, done":                        {bound(map[string]string{claimorder.Upload: "", AnnPodPhase: "Succeeded"}, nil, nil), Transferred, ""},
		"an annotation's import":                   {bound(map[string]string{claimorder.Endpoint: "http://images/disk"}, nil, nil), Unproven, "annotations order"},
		"an annotation's import, done":             {bound(map[string]string{claimorder.Endpoint: "http://images/disk", AnnPodPhase: "Succeeded"}, nil, nil), Transferred, ""},
		"a kept disk's, not begun":                 {bound(map[string]string{names.KeptFrom: "uid/root"}, nil, nil), Unproven, "keep its disk in it"},
		"a kept disk's, under way":                 {bound(map[string]string{names.KeptFrom: "uid/root", AnnPodPhase: "Running"}, nil, nil), Unproven, "delete the claim"},
		"a kept disk's":                            {bound(map[string]string{names.KeptFrom: "uid/root", AnnPodPhase: "Succeeded"}, nil, nil), Transferred, ""},
		"left by a volume that was being filled":   {bound(phase(corev1.PodRunning), nil, nil), Unproven, "begun"},
		"left by a volume before it was begun":     {bound(map[string]string{AnnMayFill: "uid"}, nil, nil), Unproven, "begun"},
		"left by a volume that was filled":         {bound(map[string]string{AnnMayFill: Filled, AnnPodPhase: "Succeeded"}, nil, nil), Transferred, ""},
		"a volume of an owner that is not there":   {bound(nil, &metav1.OwnerReference{Kind: "DataVolume", Name: "disk"}, nil), Plain, ""},
		"a kind of that name, but somebody else's": {bound(nil, owned("example.com/v1", "DataVolume"), nil), Plain, ""},
	} {
		got, lacks := Complete(c.claim)
		if got != c.want || (got == Unproven) != (lacks != "") || !strings.Contains(lacks, c.lacks) {
			t.Errorf("%s: %q, lacks %q; want %q, lacks %q", name, got, lacks, c.want, c.lacks)
		}
		for _, p := range []corev1.PersistentVolumeClaimPhase{corev1.ClaimPending, corev1.ClaimLost} {
			c.claim.Status.Phase = p
			if got, lacks := Complete(c.claim); got != Unproven || lacks == "" {
				t.Errorf("%s, %s: %q, lacks %q", name, p, got, lacks)
			}
		}
	}
}

// TestComesBack: a claim that lost its owner is that of the DataVolume which filled it, and of no other.
func TestComesBack(t *testing.T) {
	spec := &cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/one"}}}
	other := &cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/two"}}}
	full := func() *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk",
			Annotations: map[string]string{AnnPodPhase: string(corev1.PodSucceeded), names.FilledBy: SpecDigest(spec)}}}
	}
	owned, unfilled, unsaid := full(), full(), full()
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "disk", Controller: ptr.To(true)}}
	unfilled.Annotations[AnnPodPhase] = string(corev1.PodFailed)
	delete(unsaid.Annotations, names.FilledBy)
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		name  string
		spec  *cdiv1.DataVolumeSpec
		want  bool
	}{
		"restored": {full(), "disk", spec.DeepCopy(), true}, "another source": {full(), "disk", other, false}, "another name": {full(), "disk2", spec, false},
		"owned": {owned, "disk", spec, false}, "not filled": {unfilled, "disk", spec, false}, "made by hand": {unsaid, "disk", &cdiv1.DataVolumeSpec{}, false},
	} {
		if got := ComesBack(c.claim, c.name, c.spec); got != c.want {
			t.Errorf("%s: comes back: %t", name, got)
		}
	}
}
