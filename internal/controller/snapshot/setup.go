// Package snapshot takes snapshots of machines: VirtualMachineSnapshot and its content. internal/decide/snapshot decides,
// internal/controller/snapshotcontent observes; this package carries out and reports.
//
// It leaves the volumes to the cluster's VolumeSnapshots, and freezing the guest to its launcher. It does not restore snapshots;
// internal/controller/restore does.
package snapshot

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
)

// Guest is a way to the agent in a machine's guest, through its launcher pod.
type Guest interface {
	// Freeze makes the guest hold still; false means that it has no agent that answers. It does not wait: until the launcher
	// has answered the error is ask.ErrNoAnswerYet, and then done is called.
	Freeze(launcher *corev1.Pod, snapshot types.UID, done func()) (bool, error)
	// Thaw lets it continue; false means that it continued by itself before. Asked again, it answers the same. Nor does it wait.
	Thaw(launcher *corev1.Pod, snapshot types.UID, done func()) (bool, error)
}

// Reconciler reconciles snapshots.
type Reconciler struct {
	reader  client.Reader // cached
	live    client.Reader
	cluster *cluster.Writer
	clock   clock.PassiveClock
	guest   Guest
	// Answered enqueues a snapshot whose guest has answered.
	Answered chan event.GenericEvent
}

// New makes a reconciler; reader may be cached, live reads from the API server. Up to waiting answers of guests are queued.
func New(reader, live client.Reader, writer *cluster.Writer, now clock.PassiveClock, guest Guest, waiting int) *Reconciler {
	return &Reconciler{reader: reader, live: live, cluster: writer, clock: now, guest: guest, Answered: make(chan event.GenericEvent, waiting)}
}

func (r *Reconciler) read() snapshotcontent.Reader {
	return snapshotcontent.Reader{Cached: r.reader, Live: r.live, Clock: r.clock}
}

// parallel is how many snapshots are reconciled at the same time. Most of the time is spent waiting for
// the API server.
const parallel = 4

// look is how often objects are polled that are not watched: VolumeSnapshots, because not every cluster has them.
const look = time.Second

// LookStored is how often the parts of a finished snapshot are checked: one may have been deleted.
const LookStored = 2 * time.Minute

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, guest Guest) error {
	r := New(mgr.GetClient(), mgr.GetAPIReader(), writer, clock.RealClock{}, guest, 0)
	err := ctrl.NewControllerManagedBy(mgr).Named("machinesnapshot").
		For(&snapshotv1.VirtualMachineSnapshot{}).
		Owns(&snapshotv1.VirtualMachineSnapshotContent{}).
		WatchesRawSource(source.Channel(r.Answered, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(reconcile.Func(r.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up snapshots: %w", err)
	}
	return nil
}

func owner(obj client.Object, kind string) metav1.OwnerReference {
	return *metav1.NewControllerRef(obj, snapshotv1.GroupVersion.WithKind(kind))
}
