package claim

import (
	"cmp"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
)

// Annotations that make a class a default one. The value must be "true".
const (
	DefaultVirtClassAnnotation = "storageclass.kubevirt.io/is-default-virt-class"
	DefaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// DefaultVirtClass returns the class for virtual machines' disks, nil if no class is marked so. Of several the newest wins, and
// of equally new ones the first by name, as Kubernetes chooses among default classes.
func DefaultVirtClass(classes []storagev1.StorageClass) *storagev1.StorageClass {
	return newest(classes, DefaultVirtClassAnnotation)
}

// DefaultClass returns the class Kubernetes itself would give a claim that names none, nil if there is none.
func DefaultClass(classes []storagev1.StorageClass) *storagev1.StorageClass {
	return newest(classes, DefaultClassAnnotation, betaDefaultClassAnnotation)
}

func newest(classes []storagev1.StorageClass, annotations ...string) *storagev1.StorageClass {
	var found *storagev1.StorageClass
	for i := range classes {
		class := &classes[i]
		marked := slices.ContainsFunc(annotations, func(a string) bool { return class.Annotations[a] == "true" })
		if marked && (found == nil || before(class, found)) {
			found = class
		}
	}
	return found
}

func before(a, b *storagev1.StorageClass) bool {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

func (b *builder) chooseClass() {
	if b.out.Spec.StorageClassName != nil { // also "", which asks for a volume without a class
		b.out.Class = b.named(*b.out.Spec.StorageClassName)
		return
	}
	if name := b.request.PreferredClass; name != "" {
		b.out.Class = b.named(name)
		b.setClass(name, "the preferred class of the machine's preference")
		return
	}
	if class := DefaultVirtClass(b.cluster.Classes); class != nil && !b.request.Archive {
		b.out.Class = class
		b.setClass(class.Name, "the default class for virtual machines")
		return
	}
	if class := DefaultClass(b.cluster.Classes); class != nil {
		b.out.Class = class
		b.setClass(class.Name, "the default class of the cluster")
	}
}

func (b *builder) setClass(name, reason string) {
	b.out.Spec.StorageClassName = &name
	b.filled("storageClassName", name, reason)
}

func (b *builder) named(name string) *storagev1.StorageClass {
	i := slices.IndexFunc(b.cluster.Classes, func(c storagev1.StorageClass) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &b.cluster.Classes[i]
}
