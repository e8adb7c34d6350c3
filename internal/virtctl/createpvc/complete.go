package createpvc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/pkg/claim"
)

// Complete is the claim the options describe, with everything filled in, and the reasons why. Nothing is made.
func Complete(ctx context.Context, c *kube.Client, o Options) (*corev1.PersistentVolumeClaim, []claim.Filled, error) {
	o.Namespace = c.Namespace
	pvc, err := o.partial()
	if err != nil {
		return nil, nil, err
	}
	storage, err := storageOf(ctx, c, o)
	if err != nil {
		return nil, nil, err
	}
	request := claim.Request{Spec: pvc.Spec, SizeIsDisk: o.SizeIsDisk}
	if request.Source, err = sourceOf(ctx, c, o.Source); err != nil {
		return nil, nil, err
	}
	result, err := claim.Complete(request, storage)
	if err != nil {
		return nil, nil, advise(err, o)
	}
	pvc.Spec = result.Spec
	return pvc, result.Filled, nil
}

// storageOf reads what has to be known of the cluster's storage, and no more: a claim that leaves nothing open must be
// made on a cluster that has no data side.
func storageOf(ctx context.Context, c *kube.Client, o Options) (claim.Cluster, error) {
	var storage claim.Cluster
	if o.Class == "" || !o.complete() {
		classes, err := c.Core.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
		if err != nil {
			return storage, fmt.Errorf("list storage classes: %w", err)
		}
		storage.Classes = classes.Items
		if err := known(o.Class, classes.Items); err != nil {
			return storage, err
		}
	}
	if o.complete() {
		return storage, nil
	}
	var err error
	storage.Profiles, err = kube.Profiles.List(ctx, c)
	if apierrors.IsNotFound(err) {
		return storage, &noDataSide{}
	}
	if err != nil {
		return storage, err
	}
	config, err := kube.Configurations.Get(ctx, c, "config")
	if err != nil {
		return storage, err
	}
	if config != nil {
		storage.Overhead = config.Status.FilesystemOverhead
	}
	return storage, nil
}

// known says that a class which is named does not exist.
func known(name string, classes []storagev1.StorageClass) error {
	var names []string
	for i := range classes {
		names = append(names, classes[i].Name)
	}
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	slices.Sort(names)
	return &lack{error: fmt.Errorf("there is no StorageClass %s", name), advice: "This cluster has " + strings.Join(names, ", ") + "."}
}

// noDataSide is that the cluster does not have what the command needs.
type noDataSide struct{}

func (*noDataSide) Error() string {
	return "the data side (cdi.kubevirt.io) is not installed in this cluster"
}

// Advice says how to do without it.
func (*noDataSide) Advice() string {
	return "Without it, give --size, --access-mode and --volume-mode, and no source or that of another populator."
}

// lack is a claim.Error whose advice speaks of flags.
type lack struct {
	error
	advice string
}

// Unwrap lets callers see which field is missing.
func (l *lack) Unwrap() error { return l.error }

// Advice says what to do about it.
func (l *lack) Advice() string { return l.advice }

func advise(err error, o Options) error {
	var e *claim.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Lack {
	case claim.LacksSize:
		text := "Say how large it is to be with --size."
		if o.Source.Kind == cdiv1.VolumeCloneSourceRef {
			text = "The source of " + o.Source.Name + " is not there yet to take the size from. " + text
		}
		return &lack{error: e, advice: text}
	case claim.LacksClass:
		return &lack{error: e, advice: "Name a class with --storage-class, or give --access-mode and --volume-mode."}
	case claim.LacksModes, claim.LacksAccessMode:
		return &lack{error: e, advice: "Give --access-mode and --volume-mode; " + e.Advice + "."}
	case claim.LacksRoomForSource, claim.LacksUsableOverhead:
	}
	return &lack{error: e, advice: e.Advice}
}

// sourceOf is what a clone's size can be taken from; nil if the claim is no clone, or what it is cloned from is not
// there yet or not the user's to read.
func sourceOf(ctx context.Context, c *kube.Client, s Source) (*claim.Source, error) {
	if s.Namespace != "" {
		c = c.In(s.Namespace)
	}
	kind, name := s.Kind, s.Name
	if s.ours() && kind == cdiv1.VolumeCloneSourceRef {
		source, err := kube.CloneSources.Get(ctx, c, name)
		if err != nil || source == nil {
			return nil, unlessForbidden(err)
		}
		kind, name = source.Spec.Source.Kind, source.Spec.Source.Name
	}
	switch kind {
	case "PersistentVolumeClaim":
		return claimSource(ctx, c, name)
	case "VolumeSnapshot":
		return snapshotSource(ctx, c, name)
	}
	return nil, nil
}

func claimSource(ctx context.Context, c *kube.Client, name string) (*claim.Source, error) {
	pvc, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessForbidden(err)
	}
	capacity, ok := pvc.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		return nil, nil // not bound yet
	}
	return &claim.Source{
		Name: "PersistentVolumeClaim " + pvc.Namespace + "/" + pvc.Name, Class: ptr.Deref(pvc.Spec.StorageClassName, ""),
		VolumeMode: ptr.Deref(pvc.Spec.VolumeMode, corev1.PersistentVolumeFilesystem), Capacity: capacity,
	}, nil
}

var snapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}

func snapshotSource(ctx context.Context, c *kube.Client, name string) (*claim.Source, error) {
	s, err := c.Dynamic.Resource(snapshots).Namespace(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessForbidden(err)
	}
	text, _, _ := unstructured.NestedString(s.Object, "status", "restoreSize")
	capacity, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, nil // not taken yet
	}
	mode := corev1.PersistentVolumeFilesystem
	if s.GetAnnotations()["cdi.kubevirt.io/storage.import.sourceVolumeMode"] == string(corev1.PersistentVolumeBlock) {
		mode = corev1.PersistentVolumeBlock
	}
	return &claim.Source{Name: "VolumeSnapshot " + c.Namespace + "/" + name, VolumeMode: mode, Capacity: capacity}, nil
}

// Missing says of a claim that was made that what is to fill it is not there, if that is so: it may come later, or be a
// mistake.
func Missing(ctx context.Context, c *kube.Client, s Source) string {
	resource, known := resources[schema.GroupKind{Group: s.group(), Kind: s.Kind}]
	if !known {
		return ""
	}
	if s.Namespace != "" {
		c = c.In(s.Namespace)
	}
	_, err := c.Dynamic.Resource(resource).Namespace(c.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("%s %s does not exist in namespace %s: the claim is filled when it does", s.Kind, s.Name, c.Namespace)
}

// resources are those of the kinds that claims are usually filled from.
var resources = map[schema.GroupKind]schema.GroupVersionResource{
	{Group: cdiv1.SchemeGroupVersion.Group, Kind: cdiv1.VolumeImportSourceRef}: cdiv1.SchemeGroupVersion.WithResource("volumeimportsources"),
	{Group: cdiv1.SchemeGroupVersion.Group, Kind: cdiv1.VolumeUploadSourceRef}: cdiv1.SchemeGroupVersion.WithResource("volumeuploadsources"),
	{Group: cdiv1.SchemeGroupVersion.Group, Kind: cdiv1.VolumeCloneSourceRef}:  cdiv1.SchemeGroupVersion.WithResource("volumeclonesources"),
	{Group: snapshots.Group, Kind: "VolumeSnapshot"}:                           snapshots,
	{Kind: "PersistentVolumeClaim"}:                                            corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
}

// unlessForbidden: that something is not there, or not the user's to read, is no error but no help either.
func unlessForbidden(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
