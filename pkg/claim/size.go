package claim

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"sort"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// noOverhead is the overhead of storage without a filesystem of its own.
const noOverhead cdiv1.Percent = "0"

// DefaultOverhead is the share of a filesystem that is not there for the disk, unless configured otherwise.
const DefaultOverhead cdiv1.Percent = "0.06"

// MinimumSizeAnnotation on a StorageProfile is the smallest claim its storage can make, as a quantity.
const MinimumSizeAnnotation = "cdi.kubevirt.io/minimumSupportedPvcSize"

// alignment is the unit that sizes are rounded to: disks are laid out in MiB, and people read sizes in MiB.
const alignment = 1 << 20

var percentPattern = regexp.MustCompile(`^(0(?:\.\d{1,3})?|1)$`)

// OverheadOf returns the overhead that counts for a class.
func OverheadOf(o *cdiv1.FilesystemOverhead, class string) cdiv1.Percent {
	if o != nil {
		if p, ok := o.StorageClass[class]; ok && p != "" {
			return p
		}
		if o.Global != "" {
			return o.Global
		}
	}
	return DefaultOverhead
}

// Inflate is Ext4.Inflate, for who does not know the class.
func Inflate(disk int64, overhead cdiv1.Percent) (int64, error) { return Ext4.Inflate(disk, overhead) }

// Inflate returns the size of the smallest Filesystem claim that a disk of the given size fits in, rounded up to a MiB: with the
// overhead that is configured, and with what filesystems of this kind keep if they are small. An overhead of 0 says that the
// storage has no filesystem of its own.
func (f Filesystem) Inflate(disk int64, overhead cdiv1.Percent) (int64, error) {
	size, err := share(disk, overhead)
	if err != nil || disk == 0 || overhead == noOverhead || f.Holds(size) >= disk {
		return size, err
	}
	const most = 2 << 30 / alignment // no step is wider
	more := sort.Search(most, func(n int) bool { return f.Holds(size+int64(n)*alignment) >= disk })
	return size + int64(more)*alignment, nil
}

// share returns the size of a claim that a disk and a share of the claim fit in, rounded up to a MiB.
func share(disk int64, overhead cdiv1.Percent) (int64, error) {
	thousandths, err := parsePercent(overhead)
	if err != nil {
		return 0, err
	}
	if thousandths == 1000 {
		return 0, fmt.Errorf("filesystem overhead %s leaves no room for data", overhead)
	}
	// In integers: a float would make 1Gi and 1Gi*0.94/0.94 different sizes.
	size := new(big.Int).Mul(big.NewInt(disk), big.NewInt(1000))
	size.Add(size, big.NewInt(999-thousandths)).Div(size, big.NewInt(1000-thousandths))
	size.Add(size, big.NewInt(alignment-1)).Div(size, big.NewInt(alignment)).Mul(size, big.NewInt(alignment))
	if !size.IsInt64() {
		return 0, fmt.Errorf("a disk of %d bytes with an overhead of %s is larger than any claim", disk, overhead)
	}
	return size.Int64(), nil
}

// Usable returns the largest disk that fits in a Filesystem claim of the given size with the overhead that is configured, rounded
// down to a MiB. On a small filesystem it may be less; who makes the disk sees how much.
func Usable(claim int64, overhead cdiv1.Percent) (int64, error) {
	thousandths, err := parsePercent(overhead)
	if err != nil {
		return 0, err
	}
	size := new(big.Int).Mul(big.NewInt(claim), big.NewInt(1000-thousandths))
	size.Div(size, big.NewInt(1000*alignment))
	return size.Int64() * alignment, nil
}

// Disk returns the disk that a claim is for whose size Inflate made, rounded down to a MiB.
func (f Filesystem) Disk(claim int64, overhead cdiv1.Percent) (int64, error) {
	disk, err := Usable(claim, overhead)
	if err != nil || overhead == noOverhead {
		return disk, err
	}
	return min(disk, f.Holds(claim)/alignment*alignment), nil
}

func parsePercent(p cdiv1.Percent) (thousandths int64, err error) {
	if !percentPattern.MatchString(string(p)) {
		return 0, fmt.Errorf("filesystem overhead %q is not a number from 0 to 1 with at most three decimals", string(p))
	}
	f, err := strconv.ParseFloat(string(p), 64)
	if err != nil {
		return 0, fmt.Errorf("read filesystem overhead %q: %w", string(p), err)
	}
	return int64(f*1000 + 0.5), nil
}

func (b *builder) chooseSize() error {
	size, asked := b.out.Spec.Resources.Requests[corev1.ResourceStorage]
	if !asked || size.IsZero() { // "0" is how a claim that must say something says "from the source"
		return b.inferSize()
	}
	if err := b.holdDisk(&size); err != nil {
		return err
	}
	return b.fitSource(size)
}

// holdDisk makes the size of a disk the size of a claim.
func (b *builder) holdDisk(size *resource.Quantity) error {
	if !b.request.SizeIsDisk {
		return nil
	}
	asked := *size
	reason := ""
	if b.onFilesystem() {
		inflated, why, err := b.inflate(size.Value())
		if err != nil {
			return err
		}
		*size = *resource.NewQuantity(inflated, resource.BinarySI)
		reason = fmt.Sprintf("a disk of %s and %s", asked.String(), why)
	}
	if least := b.raise(size); least != "" {
		reason = least
	}
	if reason != "" && size.Cmp(asked) != 0 {
		b.setSize(*size, reason)
	}
	return nil
}

// inflate returns the size of a claim that a disk is sure to fit in, and what makes the difference.
func (b *builder) inflate(disk int64) (size int64, why string, err error) {
	least, why, err := b.share(disk)
	if err != nil {
		return 0, "", err
	}
	kind := FilesystemOf(b.out.Class)
	size, err = kind.Inflate(disk, b.overhead())
	if err != nil {
		return 0, "", b.badOverhead(err)
	}
	if size > least {
		why = fmt.Sprintf("what a small %s keeps for itself", kind)
	}
	return size, why, nil
}

// share returns the size of a claim for a disk with the overhead that is configured.
func (b *builder) share(disk int64) (size int64, why string, err error) {
	overhead := b.overhead()
	size, err = share(disk, overhead)
	if err != nil {
		return 0, "", b.badOverhead(err)
	}
	return size, fmt.Sprintf("%s of the claim for its filesystem", overhead), nil
}

// inferSize takes a clone's size from its source.
func (b *builder) inferSize() error {
	s := b.request.Source
	if s == nil {
		kind := "PVC"
		if b.request.SizeIsDisk {
			kind = "Storage"
		}
		return &Error{Lack: LacksSize, Text: kind + " size is missing", Advice: "write resources.requests.storage"}
	}
	size, reason, err := b.sourceNeeds(*s, true)
	if err != nil {
		return err
	}
	if least := b.raise(&size); least != "" {
		reason = least
	}
	b.setSize(size, reason)
	return nil
}

// sourceNeeds returns the size of a claim for the source's content: one that is sure to hold it, or one that may. What fits on a
// filesystem of the source's own class fits on another one of that size.
func (b *builder) sourceNeeds(s Source, sure bool) (resource.Quantity, string, error) {
	disk := s.Disk
	if disk.IsZero() && s.VolumeMode == corev1.PersistentVolumeBlock {
		disk = s.Capacity
	}
	switch {
	case !b.onFilesystem() && sure && s.VolumeMode != corev1.PersistentVolumeBlock && disk.Cmp(s.Capacity) < 0:
		return s.Capacity, "the size of " + s.Name, nil // as upstream: a clone is never less than its source's claim
	case !b.onFilesystem() && !disk.IsZero():
		return disk, "the disk in " + s.Name, nil
	case !b.onFilesystem(), s.VolumeMode != corev1.PersistentVolumeBlock && disk.IsZero():
		return s.Capacity, "the size of " + s.Name, nil
	}
	inflated, why, err := b.inflate(disk.Value())
	if err == nil && (!sure || s.VolumeMode != corev1.PersistentVolumeBlock && s.Class == b.className()) {
		inflated, why, err = b.share(disk.Value())
	}
	if err != nil {
		return resource.Quantity{}, "", err
	}
	size := *resource.NewQuantity(inflated, resource.BinarySI)
	if s.VolumeMode != corev1.PersistentVolumeBlock && size.Cmp(s.Capacity) < 0 {
		// Storage that clones by itself never makes a smaller volume out of a larger one.
		return s.Capacity, "the size of " + s.Name, nil
	}
	return size, fmt.Sprintf("the disk of %s in %s and %s", disk.String(), s.Name, why), nil
}

// fitSource refuses a size that the source's content cannot fit in.
func (b *builder) fitSource(size resource.Quantity) error {
	if b.request.Source == nil {
		return nil
	}
	s := *b.request.Source
	if !s.Requested.IsZero() && s.Requested.Cmp(s.Capacity) < 0 && b.roundsAlike(s) {
		s.Capacity = s.Requested
	}
	need, what, err := b.sourceNeeds(s, false)
	if err != nil {
		return err
	}
	if !b.onFilesystem() && s.VolumeMode != corev1.PersistentVolumeBlock && s.Disk.IsZero() {
		// The disk was not measured, and a claim's filesystem holds less than its size: only a claim that is certainly too small is
		// refused.
		usable, err := Usable(need.Value(), OverheadOf(b.cluster.Overhead, s.Class))
		if err != nil {
			return b.badOverhead(err)
		}
		need = *resource.NewQuantity(usable, resource.BinarySI)
	}
	if size.Cmp(need) >= 0 {
		return nil
	}
	return &Error{
		Lack: LacksRoomForSource,
		Text: fmt.Sprintf("target resources requests storage size is smaller than the source: %s is less than %s, %s",
			size.String(), need.String(), what),
		Advice: "ask for at least " + need.String() + ", or leave the size out to have it taken from the source",
	}
}

// roundsAlike reports whether the storage that made the source larger than was asked for makes the copy as much larger. Volumes
// that an administrator made have the sizes that they have.
func (b *builder) roundsAlike(s Source) bool {
	at := slices.IndexFunc(b.cluster.Classes, func(c storagev1.StorageClass) bool { return c.Name == s.Class })
	return at >= 0 && b.out.Class != nil && b.out.Class.Provisioner != NoProvisioner && b.cluster.Classes[at].Provisioner == b.out.Class.Provisioner
}

// raise lifts a size to the least the class can provide and says why, or returns "".
func (b *builder) raise(size *resource.Quantity) string {
	p := b.profile()
	if p == nil || p.Annotations[MinimumSizeAnnotation] == "" {
		return ""
	}
	least, err := resource.ParseQuantity(p.Annotations[MinimumSizeAnnotation])
	if err != nil || size.Cmp(least) >= 0 { // a malformed annotation is the profile's problem, not this claim's
		return ""
	}
	*size = least
	return "the smallest claim StorageProfile " + p.Name + " allows"
}

func (b *builder) setSize(size resource.Quantity, reason string) {
	requests := b.out.Spec.Resources.Requests.DeepCopy()
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	requests[corev1.ResourceStorage] = size
	b.out.Spec.Resources.Requests = requests
	b.filled("resources.requests.storage", size.String(), reason)
}

func (b *builder) onFilesystem() bool {
	return b.out.Spec.VolumeMode == nil || *b.out.Spec.VolumeMode != corev1.PersistentVolumeBlock
}

func (b *builder) overhead() cdiv1.Percent { return OverheadOf(b.cluster.Overhead, b.className()) }

func (b *builder) badOverhead(err error) *Error {
	return &Error{
		Lack:   LacksUsableOverhead,
		Text:   err.Error(),
		Advice: "correct spec.config.filesystemOverhead of the CDI resource",
	}
}
