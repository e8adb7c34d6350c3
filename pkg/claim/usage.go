package claim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// UsageTypePrefix and the name of a usage type, such as "fast", are an annotation of the classes that offer it: where the copies
// of machines' disks are kept. Its value does not matter, unless it is "false".
const UsageTypePrefix = "kubevirt.io/storage.usage-type."

// DefaultCopyClassAnnotation makes a class the one for copies that name no usage type. The value must be "true".
const DefaultCopyClassAnnotation = "storageclass.berth.dev/is-default-copy-class"

// DefaultCopyClass returns the class for copies that name no usage type, nil if no class is marked so.
func DefaultCopyClass(classes []storagev1.StorageClass) *storagev1.StorageClass {
	return newest(classes, DefaultCopyClassAnnotation)
}

// ForUsage returns the class that offers a usage type, nil if none does. Of several the newest wins, as among default classes.
func ForUsage(classes []storagev1.StorageClass, usage string) *storagev1.StorageClass {
	var found *storagev1.StorageClass
	for i := range classes {
		class := &classes[i]
		if slices.Contains(usages(class), usage) && (found == nil || before(class, found)) {
			found = class
		}
	}
	return found
}

// Shareable reports whether several nodes can have a claim of the class with a filesystem at once.
func (c Cluster) Shareable(class *storagev1.StorageClass) bool {
	b := builder{cluster: c}
	b.out.Class, b.out.Spec.StorageClassName = class, &class.Name
	return slices.ContainsFunc(b.offers().sets, func(s cdiv1.ClaimPropertySet) bool {
		return modeOf(s) == corev1.PersistentVolumeFilesystem && slices.Contains(s.AccessModes, corev1.ReadWriteMany)
	})
}

// UsageTypes returns all that classes offer, by name.
func UsageTypes(classes []storagev1.StorageClass) []string {
	var out []string
	for i := range classes {
		out = append(out, usages(&classes[i])...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func usages(class *storagev1.StorageClass) []string {
	var out []string
	for key, value := range class.Annotations {
		if name, ok := strings.CutPrefix(key, UsageTypePrefix); ok && name != "" && value != "false" {
			out = append(out, name)
		}
	}
	return out
}
