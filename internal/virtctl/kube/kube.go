// Package kube is virtctl's way to a cluster: the objects it reads and makes, with the rights of its user. It does not know what
// any of them is for, and it holds no cache: a command looks, acts and ends.
package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backup "github.com/berth-vm/berth/api/backup/v1alpha1"
	export "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
)

// Client is one cluster and the namespace commands are about.
type Client struct {
	Core      kubernetes.Interface
	Dynamic   dynamic.Interface
	Config    *rest.Config
	Namespace string
}

// New returns a client of a cluster. It sends no request yet.
func New(config *rest.Config, namespace string) (*Client, error) {
	config.QPS = -1 // one person's command needs no rate limit
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Client{Core: core, Dynamic: objects, Config: config, Namespace: namespace}, nil
}

// Kind is a kind of object that Kubernetes itself does not have.
type Kind[T any] struct {
	name     string
	resource schema.GroupVersionResource
	cluster  bool // the kind has no namespaces
}

func (k Kind[T]) in(c *Client) dynamic.ResourceInterface {
	if k.cluster {
		return c.Dynamic.Resource(k.resource)
	}
	return c.Dynamic.Resource(k.resource).Namespace(c.Namespace)
}

// The kinds virtctl knows.
var (
	DataVolumes    = data[cdiv1.DataVolume]("DataVolume", "datavolumes")
	DataSources    = data[cdiv1.DataSource]("DataSource", "datasources")
	UploadSources  = data[cdiv1.VolumeUploadSource]("VolumeUploadSource", "volumeuploadsources")
	ImportSources  = data[cdiv1.VolumeImportSource]("VolumeImportSource", "volumeimportsources")
	CloneSources   = data[cdiv1.VolumeCloneSource]("VolumeCloneSource", "volumeclonesources")
	Profiles       = global(data[cdiv1.StorageProfile]("StorageProfile", "storageprofiles"))
	Configurations = global(data[cdiv1.CDIConfig]("CDIConfig", "cdiconfigs"))

	UploadTokens = Kind[uploadv1.UploadTokenRequest]{
		name: "UploadTokenRequest", resource: uploadv1.SchemeGroupVersion.WithResource("uploadtokenrequests"),
	}

	Machines  = machine[kubevirt.VirtualMachine]("VirtualMachine", "virtualmachines")
	Instances = machine[kubevirt.VirtualMachineInstance]("VirtualMachineInstance", "virtualmachineinstances")

	Migrations = machine[kubevirt.VirtualMachineInstanceMigration]("VirtualMachineInstanceMigration", "virtualmachineinstancemigrations")
	Snapshots  = Kind[snapshot.VirtualMachineSnapshot]{
		name: "VirtualMachineSnapshot", resource: snapshot.GroupVersion.WithResource("virtualmachinesnapshots"),
	}
	Exports = Kind[export.VirtualMachineExport]{
		name: "VirtualMachineExport", resource: export.GroupVersion.WithResource("virtualmachineexports"),
	}
	Backups = Kind[backup.VirtualMachineBackup]{
		name: "VirtualMachineBackup", resource: backup.GroupVersion.WithResource("virtualmachinebackups"),
	}
	BackupSources = Kind[accessv1.VolumeBackupSource]{
		name: accessv1.VolumeBackupSourceKind, resource: accessv1.GroupVersion.WithResource("volumebackupsources"),
	}
	Trackers = Kind[backup.VirtualMachineBackupTracker]{
		name: "VirtualMachineBackupTracker", resource: backup.GroupVersion.WithResource("virtualmachinebackuptrackers"),
	}
	Schedules = Kind[accessv1.MachineSchedule]{
		name: "MachineSchedule", resource: accessv1.GroupVersion.WithResource("machineschedules"),
	}
	Restores = Kind[snapshot.VirtualMachineRestore]{
		name: "VirtualMachineRestore", resource: snapshot.GroupVersion.WithResource("virtualmachinerestores"),
	}
)

func data[T any](name, resource string) Kind[T] {
	return Kind[T]{name: name, resource: cdiv1.SchemeGroupVersion.WithResource(resource)}
}

func machine[T any](name, resource string) Kind[T] {
	return Kind[T]{name: name, resource: kubevirt.GroupVersion.WithResource(resource)}
}

func global[T any](k Kind[T]) Kind[T] {
	k.cluster = true
	return k
}

// Get reads an object of the client's namespace; nil means that there is none.
func (k Kind[T]) Get(ctx context.Context, c *Client, name string) (*T, error) {
	u, err := k.in(c).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", k.name, name, err)
	}
	return k.from(u)
}

// List reads all objects of the kind in the client's namespace. That the cluster does not know the kind is an error for
// which apierrors.IsNotFound holds.
func (k Kind[T]) List(ctx context.Context, c *Client) ([]T, error) { return k.Labelled(ctx, c, "") }

// Labelled reads the objects of the kind in the client's namespace that a label selector selects.
func (k Kind[T]) Labelled(ctx context.Context, c *Client, selector string) ([]T, error) {
	list, err := k.in(c).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", k.name, err)
	}
	all := make([]T, 0, len(list.Items))
	for i := range list.Items {
		object, err := k.from(&list.Items[i])
		if err != nil {
			return nil, err
		}
		all = append(all, *object)
	}
	return all, nil
}

// Create makes an object and returns it as the API server has it.
func (k Kind[T]) Create(ctx context.Context, c *Client, object *T) (*T, error) {
	u, err := k.to(object)
	if err != nil {
		return nil, err
	}
	made, err := k.in(c).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create %s %s: %w", k.name, u.GetName(), err)
	}
	return k.from(made)
}

// Check validates an object with a dry run at the API server.
func (k Kind[T]) Check(ctx context.Context, c *Client, object *T) error {
	u, err := k.to(object)
	if err != nil {
		return err
	}
	if _, err := k.in(c).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return fmt.Errorf("create %s %s: %w", k.name, u.GetName(), err)
	}
	return nil
}

// Update writes an object that was read before.
func (k Kind[T]) Update(ctx context.Context, c *Client, object *T) error {
	u, err := k.to(object)
	if err != nil {
		return err
	}
	if _, err := k.in(c).Update(ctx, u, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update %s %s: %w", k.name, u.GetName(), err)
	}
	return nil
}

// Delete deletes an object, or finds out whether that could be done.
func (k Kind[T]) Delete(ctx context.Context, c *Client, name string, dryRun []string) error {
	if err := k.in(c).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun}); err != nil {
		return fmt.Errorf("delete %s %s: %w", k.name, name, err)
	}
	return nil
}

// Remove deletes the object of that name if it has this UID. That there is none, or another one, is no error.
func (k Kind[T]) Remove(ctx context.Context, c *Client, name string, uid types.UID) error {
	err := k.in(c).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s: %w", k.name, name, err)
	}
	return nil
}

// GVK returns the kind's name, group and version, as an object says them.
func (k Kind[T]) GVK() schema.GroupVersionKind { return k.resource.GroupVersion().WithKind(k.name) }

func (k Kind[T]) to(object *T) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", k.name, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(k.GVK())
	return u, nil
}

func (k Kind[T]) from(u *unstructured.Unstructured) (*T, error) {
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", k.name, u.GetName(), err)
	}
	return object, nil
}

// In returns the client for another namespace.
func (c *Client) In(namespace string) *Client {
	other := *c
	other.Namespace = namespace
	return &other
}
