package datasource

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
)

// snapshotEvery is how often a snapshot is checked, also one that is ready, since it can be deleted: the snapshot API is an add-on
// that may not be there to watch.
const snapshotEvery = 5 * time.Second

type reconciler struct {
	reader client.Reader // cached
	live   client.Reader // for snapshots, whose API may not be there to watch
	writer *cluster.Writer
	clock  clock.PassiveClock
}

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer) error {
	r := &reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), writer: writer, clock: clock.RealClock{}}
	err := ctrl.NewControllerManagedBy(mgr).
		For(&cdiv1.DataSource{}).
		Watches(&cdiv1.DataSource{}, handler.EnqueueRequestsFromMapFunc(r.standingFor)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.standingFor)).
		Complete(cluster.Settle(r))
	if err != nil {
		return fmt.Errorf("set up the DataSource controller: %w", err)
	}
	return nil
}

// standingFor returns the DataSources that name an object. There are few DataSources, so they are simply looked through.
func (r *reconciler) standingFor(ctx context.Context, obj client.Object) []reconcile.Request {
	var all cdiv1.DataSourceList
	if err := r.reader.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "list DataSources")
		return nil
	}
	var due []reconcile.Request
	for i := range all.Items {
		src := all.Items[i].Spec.Source
		pvc, ds := src.PVC, src.DataSource
		// One that stands for another is woken with all claims of its namespace: it depends on them through the other.
		named := pvc != nil && cmp.Or(pvc.Namespace, all.Items[i].Namespace) == obj.GetNamespace() && pvc.Name == obj.GetName() ||
			ds != nil && all.Items[i].Namespace == obj.GetNamespace()
		if named {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return due
}

// Reconcile writes one DataSource's status.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var f facts
	if err := r.reader.Get(ctx, req.NamespacedName, &f.self); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if f.self.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if err := r.observe(ctx, &f); err != nil {
		return ctrl.Result{}, err
	}
	v := decide(f)
	result := ctrl.Result{}
	if v.source.Snapshot != nil {
		result.RequeueAfter = snapshotEvery
	}
	want := cdiv1.DataSourceStatus{Source: v.source, Conditions: []cdiv1.DataSourceCondition{r.condition(f.self.Status, v)}}
	next := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.self.Namespace, Name: f.self.Name, UID: f.self.UID, Labels: v.labels}, Status: want,
	}
	if keys := strings.Join(slices.Sorted(maps.Keys(v.labels)), ","); keys != "" {
		next.Annotations = map[string]string{annLabels: keys}
	}
	if equality.Semantic.DeepEqual(f.self.Status, want) && labelled(&f.self, next) {
		return result, nil
	}
	fields, err := applied(next)
	if err != nil {
		return ctrl.Result{}, err
	}
	return result, r.writer.Apply(ctx, fields)
}

// applied returns the DataSource as it is applied. A source that is empty is left out: the API server would make null of it when
// what it had is taken back, and refuse that.
func applied(d *cdiv1.DataSource) (client.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		return nil, fmt.Errorf("turn a DataSource into fields: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(cdiv1.SchemeGroupVersion.WithKind("DataSource"))
	if d.Status.Source == (cdiv1.DataSourceSource{}) {
		unstructured.RemoveNestedField(u.Object, "status", "source")
	}
	return u, nil
}

// labelled reports whether the DataSource has the labels that it should have from what it stands for, and no others of that kind.
func labelled(have, want *cdiv1.DataSource) bool {
	for key, value := range want.Labels {
		if have.Labels[key] != value {
			return false
		}
	}
	return have.Annotations[annLabels] == want.Annotations[annLabels]
}

func (r *reconciler) condition(old cdiv1.DataSourceStatus, v verdict) cdiv1.DataSourceCondition {
	now := metav1.NewTime(r.clock.Now()).Rfc3339Copy()
	c := cdiv1.DataSourceCondition{Type: cdiv1.DataSourceReady, ConditionState: cdiv1.ConditionState{
		Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: now, LastHeartbeatTime: now,
	}}
	for _, o := range old.Conditions {
		if o.Type != c.Type || o.Status != c.Status {
			continue
		}
		c.LastTransitionTime = o.LastTransitionTime
		if o.Reason == c.Reason && o.Message == c.Message {
			c.LastHeartbeatTime = o.LastHeartbeatTime
		}
	}
	return c
}

func (r *reconciler) observe(ctx context.Context, f *facts) error {
	objects := cluster.Reading{Objects: r.reader, Live: r.live}
	var err error
	if f.next, err = clonesource.Next(ctx, objects, &f.self); err != nil {
		return err
	}
	end, _ := clonesource.End(&f.self, f.next)
	at, ok := clonesource.OfSource(f.self.Namespace, &cdiv1.DataVolumeSource{PVC: end.PVC, Snapshot: end.Snapshot})
	if !ok {
		return nil
	}
	found, err := clonesource.Find(ctx, objects, at)
	f.lacks, f.labels = found.Lacks(), found.Labels()
	return err
}
