package claim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Request is the author's partial description of a claim.
type Request struct {
	// Spec may lack class, volume mode, access modes and, for a clone, the size. A volume mode that is missing or
	// FromStorageProfile is chosen here; use FromPVC where a missing one means Filesystem, as Kubernetes has it.
	Spec corev1.PersistentVolumeClaimSpec
	// SizeIsDisk says that the requested size is that of the disk the guest will see, not that of the claim: a claim
	// with a filesystem is then made larger by the filesystem's overhead.
	SizeIsDisk bool
	// Archive says that the claim will hold files and not a disk: it needs a filesystem, and the default class for
	// virtual machines has no say.
	Archive bool
	// PreferredClass is used when Spec names no class and before any default: the preferredStorageClassName of a
	// VirtualMachinePreference. Empty means no preference.
	PreferredClass string
	// Source is the object that the claim will be cloned from; nil means that the claim is not a clone or that nothing is known yet.
	Source *Source
}

// Source is the claim or snapshot that a claim is cloned from.
type Source struct {
	Name       string // as messages call it, for example "PersistentVolumeClaim golden/fedora"
	Class      string // its storage class; empty means unknown
	VolumeMode corev1.PersistentVolumeMode
	Capacity   resource.Quantity // status.capacity of a claim, status.restoreSize of a snapshot
	// Requested is the size that a claim asked for. Its volume may be larger: storage rounds up. Zero means unknown.
	Requested resource.Quantity
	// Disk is the virtual size of the disk inside, if it was measured. Zero means unknown.
	Disk resource.Quantity
}

// Cluster holds the facts about a cluster's storage that completion needs.
type Cluster struct {
	Classes  []storagev1.StorageClass
	Profiles []cdiv1.StorageProfile
	// Overhead is the effective one, from CDIConfig's status. Nil means DefaultOverhead for every class.
	Overhead *cdiv1.FilesystemOverhead
}

// Result is a complete claim.
type Result struct {
	Spec corev1.PersistentVolumeClaimSpec
	// Class is the class the claim will get, nil when it has none or one that is not a StorageClass object.
	Class *storagev1.StorageClass
	// Filled lists the fields that were missing: class, volume mode, access modes, size, in this order.
	Filled []Filled
}

// Filled is one field that Complete wrote.
type Filled struct {
	Field  string // storageClassName, volumeMode, accessModes or resources.requests.storage
	Value  string
	Reason string // a phrase: "the default class for virtual machines"
}

// String is "field value: reason".
func (f Filled) String() string { return f.Field + " " + f.Value + ": " + f.Reason }

// Reasons joins every filled field into one line for an event or a terminal.
func (r Result) Reasons() string {
	lines := make([]string, len(r.Filled))
	for i, f := range r.Filled {
		lines[i] = f.String()
	}
	return strings.Join(lines, "; ")
}

// FromStorage returns the request made by spec.storage of a DataVolume. A nil spec is an empty one.
func FromStorage(s *cdiv1.StorageSpec) Request {
	r := Request{SizeIsDisk: true}
	if s == nil {
		return r
	}
	s = s.DeepCopy()
	r.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes:      s.AccessModes,
		Selector:         s.Selector,
		Resources:        s.Resources,
		VolumeName:       s.VolumeName,
		StorageClassName: s.StorageClassName,
		VolumeMode:       s.VolumeMode,
		DataSource:       s.DataSource,
		DataSourceRef:    s.DataSourceRef,
	}
	return r
}

// FromPVC returns the request made by spec.pvc of a DataVolume, and by a claim the API server has already defaulted: a missing
// volume mode means Filesystem and the size is the claim's. A nil spec is an empty one.
func FromPVC(s *corev1.PersistentVolumeClaimSpec) Request {
	if s == nil {
		s = &corev1.PersistentVolumeClaimSpec{}
	}
	r := Request{Spec: *s.DeepCopy()}
	if r.Spec.VolumeMode == nil {
		filesystem := corev1.PersistentVolumeFilesystem
		r.Spec.VolumeMode = &filesystem
	}
	return r
}

// Complete fills what the request leaves open. The only error it returns is an *Error.
func Complete(r Request, c Cluster) (Result, error) {
	b := builder{request: r, cluster: c, out: Result{Spec: *r.Spec.DeepCopy()}}
	b.chooseClass()
	if err := b.chooseModes(); err != nil {
		return Result{}, err
	}
	if err := b.chooseSize(); err != nil {
		return Result{}, err
	}
	return b.out, nil
}

// builder carries one claim through the four choices; each may rely on those before it.
type builder struct {
	request Request
	cluster Cluster
	out     Result
}

func (b *builder) filled(field, value, reason string) {
	b.out.Filled = append(b.out.Filled, Filled{Field: field, Value: value, Reason: reason})
}

func (b *builder) className() string {
	if b.out.Spec.StorageClassName == nil {
		return ""
	}
	return *b.out.Spec.StorageClassName
}

// profile returns the StorageProfile of the chosen class; nil when there is none (yet).
func (b *builder) profile() *cdiv1.StorageProfile {
	name := b.className()
	i := slices.IndexFunc(b.cluster.Profiles, func(p cdiv1.StorageProfile) bool { return p.Name == name })
	if name == "" || i < 0 {
		return nil
	}
	return &b.cluster.Profiles[i]
}
