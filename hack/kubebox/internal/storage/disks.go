package storage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/berth-vm/berth/hack/kubebox/internal/host"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

// keeperName marks the volumes as made by someone, so that the control plane does not try to reclaim them itself.
const keeperName = "kubebox.berth.dev/disks"

// A keeper keeps one volume object per static disk of its node. When the claim of one is deleted, the keeper wipes the disk and
// offers it again, so that tests can go on for ever with a few disks.
type keeper struct {
	client  kubernetes.Interface
	node    string
	disks   map[string]plan.Disk // by the name of the volume
	volumes corelisters.PersistentVolumeLister
}

// KeepDisks runs the keeper of a node's disks until the context ends.
func KeepDisks(ctx context.Context, client kubernetes.Interface, node string, disks []plan.Disk) error {
	label := "kubebox.berth.dev/node=" + node
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = label }))
	volumes := factory.Core().V1().PersistentVolumes()
	k := &keeper{client: client, node: node, disks: map[string]plan.Disk{}, volumes: volumes.Lister()}
	l := newLoop("volume", k.keep)
	if _, err := volumes.Informer().AddEventHandler(l); err != nil {
		return fmt.Errorf("watch volumes: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, d := range disks {
		name := node + "-" + d.Name
		k.disks[name] = d
		l.queue.Add(name)
	}
	l.run(ctx)
	return ctx.Err()
}

func (k *keeper) keep(ctx context.Context, name string) error {
	disk, ours := k.disks[name]
	if !ours {
		return nil
	}
	volume, err := k.volumes.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = k.client.CoreV1().PersistentVolumes().Create(ctx, k.volume(name, disk), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("offer disk %s: %w", disk.Name, err)
		}
		return nil
	case err != nil:
		return err
	case !reclaimable(volume):
		return nil
	}
	if err := host.WipeDisk(disk); err != nil {
		return fmt.Errorf("recycle disk %s: %w", disk.Name, err)
	}
	klog.InfoS("recycled", "disk", disk.Name, "claim", klog.KRef(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name))
	return deleteVolumeObject(ctx, k.client, volume)
}

func (k *keeper) volume(name string, disk plan.Disk) *corev1.PersistentVolume {
	v := localVolume(name, k.node, disk.Path())
	v.Labels = map[string]string{"kubebox.berth.dev/node": k.node}
	v.Annotations = map[string]string{annotationBy: keeperName}
	mode := corev1.PersistentVolumeFilesystem
	if disk.Block() {
		mode = corev1.PersistentVolumeBlock
	}
	v.Spec.VolumeMode = &mode
	v.Spec.StorageClassName = plan.StaticClass
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(disk.Size, resource.BinarySI)}
	return v
}
