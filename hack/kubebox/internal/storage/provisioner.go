// Package storage is the storage side of the cluster: the provisioner of the dynamic local classes, and the keeper of each node's
// static disks. Both work as their counterparts on a real cluster do, through the API only; they know nothing of who uses the
// volumes.
package storage

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

const (
	// Provisioner is the name that storage classes call the provisioner by. By this name it leaves claims with a data source to their
	// populators, as CSI drivers do.
	Provisioner = "kubebox.berth.dev/local"
	// PathProvisioner is a second name of the provisioner. Under this name it ignores data sources, like rancher.io/local-path and
	// others that are not CSI drivers.
	PathProvisioner = "kubebox.berth.dev/local-path"

	volumesDir            = "/var/lib/kubebox/volumes"
	annotationProvisioner = "volume.kubernetes.io/storage-provisioner"
	annotationNode        = "volume.kubernetes.io/selected-node"
	annotationBy          = "pv.kubernetes.io/provisioned-by"
)

// A provisioner makes directories on nodes into volumes. It runs on the control machine, which sees the directories of all nodes.
type provisioner struct {
	client  kubernetes.Interface
	layout  plan.Layout
	events  record.EventRecorder
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	nodes   corelisters.NodeLister
	classes storagelisters.StorageClassLister
}

// Provision runs the provisioner until the context ends.
func Provision(ctx context.Context, client kubernetes.Interface, l plan.Layout) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events("")})
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	p := &provisioner{
		client: client, layout: l,
		events:  broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Provisioner}),
		claims:  core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
		nodes:   core.Nodes().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister(),
	}
	claims := newLoop("claim", p.provisionClaim)
	volumes := newLoop("volume", p.deleteVolume)
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		loop     *loop
	}{{core.PersistentVolumeClaims().Informer(), claims}, {core.PersistentVolumes().Informer(), volumes}} {
		if _, err := w.informer.AddEventHandler(w.loop); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go volumes.run(ctx)
	claims.run(ctx)
	return ctx.Err()
}

// provisionClaim makes a volume for a claim that waits for one of ours.
func (p *provisioner) provisionClaim(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	class, err := p.classes.Get(className(claim))
	if err != nil || !wanted(claim, class) {
		return nil // no class of ours yet; the claim changes when there is something to do
	}
	if problem := unsupported(claim); problem != "" {
		p.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", problem)
		return nil
	}
	node := claim.Annotations[annotationNode]
	if node == "" {
		if node, err = p.choose(claim); err != nil {
			return err
		}
	}
	return p.create(ctx, claim, class, node)
}

func className(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// wanted is true for a claim that the control plane has handed to this provisioner and that may be bound now. A claim with a data
// source is its populator's, if the provisioner is asked by the name that honours that.
func wanted(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" &&
		ours(class.Provisioner) && claim.Annotations[annotationProvisioner] == class.Provisioner &&
		(class.Provisioner == PathProvisioner || claim.Spec.DataSource == nil && claim.Spec.DataSourceRef == nil) &&
		(!waits || claim.Annotations[annotationNode] != "")
}

// ours is true for both names of the provisioner.
func ours(name string) bool { return name == Provisioner || name == PathProvisioner }

func unsupported(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return "this class has Filesystem volumes only; use class " + plan.StaticClass + " for Block"
	}
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Sprintf("a local volume cannot be %s; use %s", mode, corev1.ReadWriteOnce)
		}
	}
	return ""
}

// choose picks a node for a claim that no pod waits for: any Ready one, by the claim's UID so that a retry picks the same.
func (p *provisioner) choose(claim *corev1.PersistentVolumeClaim) (string, error) {
	all, err := p.nodes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	var ready []string
	for _, n := range all {
		if !n.Spec.Unschedulable && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			ready = append(ready, n.Name)
		}
	}
	if len(ready) == 0 {
		return "", fmt.Errorf("no node is Ready to hold claim %s/%s", claim.Namespace, claim.Name)
	}
	sort.Strings(ready)
	h := fnv.New32a()
	_, _ = h.Write([]byte(claim.UID)) // never fails
	return ready[int(h.Sum32()%uint32(len(ready)))], nil
}

func (p *provisioner) create(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) error {
	name := "pvc-" + string(claim.UID)
	if _, err := p.volumes.Get(name); err == nil {
		return nil
	}
	if _, err := os.Stat(p.layout.Node(node)); err != nil {
		p.events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "node %s is not a node of this cluster's provisioner", node)
		return fmt.Errorf("find node %s: %w", node, err)
	}
	dir := p.layout.Node(node, volumesDir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // any user's pod may write, as with every local class
		return fmt.Errorf("open volume for all: %w", err)
	}
	volume := localVolume(name, node, filepath.Join(volumesDir, name))
	volume.Annotations = map[string]string{annotationBy: class.Provisioner}
	volume.Spec.StorageClassName = class.Name
	volume.Spec.MountOptions = class.MountOptions
	volume.Spec.AccessModes = claim.Spec.AccessModes
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}
	volume.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion}
	if class.ReclaimPolicy != nil {
		volume.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create volume %s: %w", name, err)
	}
	p.events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "made volume %s on node %s", name, node)
	return nil
}

// localVolume returns a volume at a path of one node.
func localVolume(name, node, path string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}},
			}}}},
		},
	}
}

// deleteVolume removes a volume of ours whose claim is gone.
func (p *provisioner) deleteVolume(ctx context.Context, name string) error {
	volume, err := p.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !ours(volume.Annotations[annotationBy]) || !reclaimable(volume) || volume.Spec.Local == nil {
		return nil
	}
	node := hostname(volume)
	if err := os.RemoveAll(p.layout.Node(node, volumesDir, filepath.Base(volume.Spec.Local.Path))); err != nil {
		return fmt.Errorf("remove volume: %w", err)
	}
	return deleteVolumeObject(ctx, p.client, volume)
}

func reclaimable(v *corev1.PersistentVolume) bool {
	return v.DeletionTimestamp == nil && v.Status.Phase == corev1.VolumeReleased &&
		v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

func hostname(v *corev1.PersistentVolume) string {
	if v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil {
		for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if e.Key == corev1.LabelHostname && len(e.Values) == 1 {
					return e.Values[0]
				}
			}
		}
	}
	return ""
}

func deleteVolumeObject(ctx context.Context, client kubernetes.Interface, v *corev1.PersistentVolume) error {
	err := client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete volume %s: %w", v.Name, err)
	}
	return nil
}

// patience is how long one step of a loop may take.
const patience = time.Minute
