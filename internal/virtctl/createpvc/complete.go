package createpvc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// Complete returns the claim that the options describe, with all fields filled in, and the reasons. It creates nothing.
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
	if request.Source, err = sourceOf(ctx, c, &pvc.Spec); err != nil {
		return nil, nil, err
	}
	result, err := claim.Complete(request, storage)
	if err != nil {
		return nil, nil, advise(err, o)
	}
	pvc.Spec = result.Spec
	return pvc, result.Filled, nil
}

// storageOf reads only the needed facts about the cluster's storage: a complete claim must work on a cluster without a data side.
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
	return &flagError{error: fmt.Errorf("there is no StorageClass %s", name), advice: "This cluster has " + strings.Join(names, ", ") + "."}
}

// noDataSide is the error for a cluster that does not have the objects that the command needs.
type noDataSide struct{}

func (*noDataSide) Error() string {
	return "the data side (cdi.kubevirt.io) is not installed in this cluster"
}

// Advice returns how to do without it.
func (*noDataSide) Advice() string {
	return "Without it, give --size, --access-mode and --volume-mode, and no source or that of another populator."
}

// flagError is a claim.Error whose advice speaks of flags.
type flagError struct {
	error
	advice string
}

// Unwrap lets callers see which field is missing.
func (l *flagError) Unwrap() error { return l.error }

// Advice returns what to do about it.
func (l *flagError) Advice() string { return l.advice }

func advise(err error, o Options) error {
	var e *claim.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Lack {
	case claim.LacksSize:
		text := "Say how large it is to be with --size."
		if o.Source.Kind == cdiv1.VolumeCloneSourceRef || o.Source.Kind == cdiv1.DataVolumeDataSource {
			text = "The source of " + o.Source.Name + " is not there yet to take the size from. " + text
		}
		return &flagError{error: e, advice: text}
	case claim.LacksClass:
		return &flagError{error: e, advice: "Name a class with --storage-class, or give --access-mode and --volume-mode."}
	case claim.LacksModes, claim.LacksAccessMode:
		return &flagError{error: e, advice: "Give --access-mode and --volume-mode; " + e.Advice + "."}
	case claim.LacksRoomForSource, claim.LacksUsableOverhead:
	}
	return &flagError{error: e, advice: e.Advice}
}

// reading reads the cluster with the user's rights: objects they may not read are reported as absent.
type reading struct{ *kube.Client }

// Read reads one of the kinds that a claim is cloned from.
func (r reading) Read(ctx context.Context, namespace, name string, into runtime.Object) (bool, error) {
	at, known := cloned[reflect.TypeOf(into)]
	if !known {
		return false, fmt.Errorf("nothing is cloned from a %T", into)
	}
	u, err := r.Dynamic.Resource(at).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", at.Resource, name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return false, fmt.Errorf("read %s %s: %w", at.Resource, name, err)
	}
	return true, nil
}

// ReadAll implements Reading for permissions of namespaces: the user's own rights are checked instead, so it returns none.
func (reading) ReadAll(context.Context, string, map[string]string, runtime.Object) error { return nil }

// cloned are the kinds that a claim is cloned from, and what they know of its data.
var cloned = map[reflect.Type]schema.GroupVersionResource{
	reflect.TypeFor[*corev1.PersistentVolumeClaim](): corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
	reflect.TypeFor[*cdiv1.VolumeCloneSource]():      cdiv1.SchemeGroupVersion.WithResource("volumeclonesources"),
	reflect.TypeFor[*cdiv1.DataSource]():             cdiv1.SchemeGroupVersion.WithResource("datasources"),
	reflect.TypeFor[*volumesnapshot.Snapshot]():      snapshots,
	reflect.TypeFor[*volumesnapshot.Content]():       volumesnapshot.GroupVersion.WithResource("volumesnapshotcontents"),
}

var snapshots = volumesnapshot.GroupVersion.WithResource("volumesnapshots")

// sourceOf returns what a clone's size can be taken from; nil if the claim is no clone, or what it is cloned from is not there
// yet or not the user's to read.
func sourceOf(ctx context.Context, c *kube.Client, spec *corev1.PersistentVolumeClaimSpec) (*claim.Source, error) {
	at, ok := clonesource.Of(c.Namespace, spec)
	if !ok {
		return nil, nil
	}
	return clonesource.MeasureGranted(ctx, reading{c}, at)
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

// resources are the resources of the kinds that claims are usually filled from.
var resources = map[schema.GroupKind]schema.GroupVersionResource{
	{Group: cdiv1.SchemeGroupVersion.Group, Kind: cdiv1.VolumeImportSourceRef}: cdiv1.SchemeGroupVersion.WithResource("volumeimportsources"),
	{Group: cdiv1.SchemeGroupVersion.Group, Kind: cdiv1.VolumeUploadSourceRef}: cdiv1.SchemeGroupVersion.WithResource("volumeuploadsources"),
	{Group: cdiv1.SchemeGroupVersion.Group, Kind: cdiv1.VolumeCloneSourceRef}:  cdiv1.SchemeGroupVersion.WithResource("volumeclonesources"),
	{Group: cdiv1.SchemeGroupVersion.Group, Kind: cdiv1.DataVolumeDataSource}:  cdiv1.SchemeGroupVersion.WithResource("datasources"),
	{Group: snapshots.Group, Kind: "VolumeSnapshot"}:                           snapshots,
	{Kind: "PersistentVolumeClaim"}:                                            corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
}
