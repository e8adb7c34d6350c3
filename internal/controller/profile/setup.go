package profile

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=storageprofiles,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=storageprofiles/status,verbs=patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshotclasses,verbs=get;list;watch

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, writer *cluster.Writer) error {
	r := &reconciler{client: mgr.GetClient(), writer: writer, clock: clock.RealClock{}, snapshots: &snapshotWatch{mgr: mgr}}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("profile").
		For(&storagev1.StorageClass{}).
		Watches(&cdiv1.StorageProfile{}, &handler.EnqueueRequestForObject{}). // a profile is named like its class
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.classOfVolume), builder.WithPredicates(offersOther())).
		Build(r)
	if err != nil {
		return fmt.Errorf("set up the profile controller: %w", err)
	}
	r.snapshots.controller = c
	return nil
}

// offersOther selects changes of a volume's modes. That a volume is bound or released does not concern its class, and reading all
// volumes at each such event would take time quadratic in their number.
func offersOther() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*corev1.PersistentVolume), e.ObjectNew.(*corev1.PersistentVolume)
		return !equality.Semantic.DeepEqual(
			fromVolumes([]corev1.PersistentVolume{*old}, old.Spec.StorageClassName),
			fromVolumes([]corev1.PersistentVolume{*now}, old.Spec.StorageClassName))
	}}
}

// classOfVolume enqueues the volume's class, if the profile of the class is made from its volumes.
func (r *reconciler) classOfVolume(ctx context.Context, o client.Object) []ctrl.Request {
	key := types.NamespacedName{Name: o.(*corev1.PersistentVolume).Spec.StorageClassName}
	var class storagev1.StorageClass
	if err := r.client.Get(ctx, key, &class); err != nil || class.Provisioner != claim.NoProvisioner {
		return nil // a class that appears later brings its own event
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// snapshotWatch watches the snapshot classes from the moment the cluster has such a thing: the snapshot API is an
// add-on, and watching a kind that does not exist would keep the controller from starting.
type snapshotWatch struct {
	mgr        ctrl.Manager
	controller controller.Controller

	mu      sync.Mutex
	started bool
}

// start reports whether snapshot classes are watched, starting to if that is possible.
func (w *snapshotWatch) start() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return true, nil
	}
	if _, err := w.mgr.GetRESTMapper().RESTMapping(snapshotClassKind.GroupKind(), snapshotClassKind.Version); err != nil {
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return false, fmt.Errorf("look for the snapshot API: %w", err)
	}
	kind := &volumesnapshot.Class{}
	affected := handler.TypedEnqueueRequestsFromMapFunc(w.classesOfDriver)
	if err := w.controller.Watch(source.Kind(w.mgr.GetCache(), kind, affected)); err != nil {
		return false, fmt.Errorf("watch volume snapshot classes: %w", err)
	}
	w.started = true
	return true, nil
}

func (w *snapshotWatch) classesOfDriver(ctx context.Context, c *volumesnapshot.Class) []ctrl.Request {
	var classes storagev1.StorageClassList
	if err := w.mgr.GetClient().List(ctx, &classes); err != nil {
		return nil // a cached list fails only while the process ends
	}
	var out []ctrl.Request
	for _, class := range classes.Items {
		if class.Provisioner == c.Driver {
			out = append(out, ctrl.Request{NamespacedName: types.NamespacedName{Name: class.Name}})
		}
	}
	return out
}
