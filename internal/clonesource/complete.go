package clonesource

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/names"
)

// What is recorded on a claim about its contents.
const (
	AnnPodPhase     = names.PodPhase
	AnnPopulatedFor = names.PopulatedFor
	AnnMayFill      = names.MayFill
	Filled          = names.Filled
)

// Proof is the fact that proves that the data of a claim is complete.
type Proof string

// The proofs that a source is complete. Each is an existing object or record: the absence of a record on a claim that Berth fills
// proves nothing.
const (
	Unproven    Proof = ""
	Transferred Proof = "the end of its transfer is recorded on it"
	Populated   Proof = "it is recorded on it that it was populated"
	Plain       Proof = "it is bound, and nothing here fills it"
)

// Complete returns the one answer to the question whether all data of a claim is there: the fact that proves it, or what is
// missing, for a person.
func Complete(c *corev1.PersistentVolumeClaim) (proof Proof, lacks string) {
	who := filler(c)
	recorded := c.Annotations[AnnPodPhase] == string(corev1.PodSucceeded)
	switch {
	case c.Status.Phase == corev1.ClaimLost:
		return Unproven, "its volume is lost"
	case c.Status.Phase != corev1.ClaimBound:
		return Unproven, "it is not bound yet"
	case PopulatedByUs(c) && c.Annotations[AnnPopulatedFor] == "" && !recorded: // other populators of our kinds write only the latter
		return Unproven, "nothing records that it was filled from " + who
	case PopulatedByUs(c) && owner(c) == "":
		return Populated, ""
	case who == "":
		return Plain, ""
	case recorded:
		return Transferred, ""
	case c.Annotations[names.Fatal] == "true":
		return Unproven, who + " has failed to fill it and does not try again"
	}
	return Unproven, "it is still being filled by " + who
}

// FilledInPlace reports whether Berth writes to the claim itself, after it is bound. A bound claim may be empty then.
func FilledInPlace(c *corev1.PersistentVolumeClaim) bool { return filler(c) != "" && !PopulatedByUs(c) }

// Refilled reports whether the claim was made to be filled and is not filled yet, although its owner may still report the
// completion of an earlier claim.
func Refilled(c *corev1.PersistentVolumeClaim) bool {
	may := c.Annotations[AnnMayFill]
	return may != "" && may != Filled && c.Annotations[AnnPodPhase] != string(corev1.PodSucceeded)
}

// filler returns who of ours fills the claim, as messages call them; "" if none.
func filler(c *corev1.PersistentVolumeClaim) string {
	if o := owner(c); o != "" {
		return o
	}
	if PopulatedByUs(c) {
		return c.Spec.DataSourceRef.Kind + " " + c.Spec.DataSourceRef.Name
	}
	if c.Annotations[names.KeptFrom] != "" {
		return "a machine that is to keep its disk in it; if that has ended, it never will be: delete the claim"
	}
	spec, refused := claimorder.Of(c)
	switch {
	case refused != nil:
		return "what its annotations order, which cannot be done"
	case spec != nil && spec.Source.Upload != nil:
		return "an upload"
	case spec != nil:
		return "the import that its annotations order"
	}
	if _, begun := c.Annotations[AnnPodPhase]; begun || Refilled(c) {
		return "a transfer that was begun" // by a controller that does not own the claim any more
	}
	return ""
}

// owner returns the DataVolume that the claim belongs to, or the claim that it is filled for.
func owner(c *corev1.PersistentVolumeClaim) string {
	o := metav1.GetControllerOf(c)
	if o == nil {
		return ""
	}
	switch schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind() {
	case cdiv1.SchemeGroupVersion.WithKind("DataVolume").GroupKind(), schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		return o.Kind + " " + o.Name
	}
	return ""
}

// PopulatedByUs reports whether a claim names one of our sources, and so is bound to a volume that was filled before.
func PopulatedByUs(c *corev1.PersistentVolumeClaim) bool {
	ref := c.Spec.DataSourceRef
	if ref == nil || ref.APIGroup == nil {
		return false
	}
	if *ref.APIGroup == BackupSource.Group {
		return ref.Kind == BackupSource.Kind
	}
	if *ref.APIGroup != cdiv1.SchemeGroupVersion.Group {
		return false
	}
	switch ref.Kind {
	case cdiv1.VolumeImportSourceRef, cdiv1.VolumeUploadSourceRef, cdiv1.VolumeCloneSourceRef, cdiv1.DataVolumeDataSource:
		return true
	}
	return false
}
