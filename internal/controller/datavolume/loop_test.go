package datavolume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/token"
)

// The loop tests run the reconciler against a cluster that plays scheduler, volume binder and kubelet. Each scenario is
// run once undisturbed, then once for every write it makes with that write refused, and once with the controller dying
// right after it. However it is disturbed, it must end in the same place.

const ns, volumeName = "team", "disk"

// scenario is a volume and how the cluster around it behaves.
type scenario struct {
	name    string
	objects []client.Object
	volume  *cdiv1.DataVolume
	// reports are what the workers leave, one after another; the last is repeated.
	reports []task.Report
	// consumed: some other pod uses the claim once it is held.
	consumed bool
	phase    cdiv1.DataVolumePhase
}

func done() task.Report {
	return task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed}
}

func scenarios() []scenario {
	waits, immediate := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	retry := task.Report{Version: 1, Outcome: task.Retry, Reason: task.SourceNotFound, Detail: "http://images/disk.qcow2: 404"}
	fatal := task.Report{Version: 1, Outcome: task.Fatal, Reason: task.ChecksumMismatch, Detail: "checksum differs"}
	block := newVolume(&cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})
	block.Spec.PVC.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	adopted := newVolume(http)
	adopted.Annotations = map[string]string{annAdopt: "true"}
	atOnce := newVolume(http)
	atOnce.Annotations = map[string]string{annImmediate: ""}
	return []scenario{
		{name: "import", objects: []client.Object{class(immediate)}, volume: newVolume(http), reports: []task.Report{done()},
			phase: cdiv1.Succeeded},
		{name: "held, then consumed", objects: []client.Object{class(waits)}, volume: newVolume(http),
			reports: []task.Report{done()}, consumed: true, phase: cdiv1.Succeeded},
		{name: "held for ever", objects: []client.Object{class(waits)}, volume: newVolume(http), phase: cdiv1.WaitForFirstConsumer},
		{name: "gate off", objects: []client.Object{class(waits), &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}}},
			volume: newVolume(http), reports: []task.Report{done()}, phase: cdiv1.Succeeded},
		{name: "bound at once", objects: []client.Object{class(waits)}, volume: atOnce, reports: []task.Report{done()},
			phase: cdiv1.Succeeded},
		{name: "second time lucky", objects: []client.Object{class(immediate)}, volume: newVolume(http),
			reports: []task.Report{retry, done()}, phase: cdiv1.Succeeded},
		{name: "fatal", objects: []client.Object{class(immediate)}, volume: newVolume(http), reports: []task.Report{fatal},
			phase: cdiv1.Failed},
		{name: "blank device", objects: []client.Object{class(immediate)}, volume: block, phase: cdiv1.Succeeded},
		{name: "adopted", objects: []client.Object{class(immediate), loneClaim()}, volume: adopted, phase: cdiv1.Succeeded},
		{name: "cloned by copying", objects: []client.Object{class(immediate), golden(ns)}, volume: cloneOf(ns),
			reports: []task.Report{done()}, phase: cdiv1.Succeeded},
		{name: "cloned by streaming", objects: []client.Object{class(immediate), golden("images")}, volume: cloneOf("images"),
			reports: []task.Report{retry, done()}, phase: cdiv1.Succeeded},
		{name: "clone of nothing", objects: []client.Object{class(immediate)}, volume: cloneOf(ns), phase: cdiv1.Pending},
		{name: "cloned by snapshot", objects: append([]client.Object{class(immediate), golden(ns)}, csi()...), volume: cloneOf(ns),
			phase: cdiv1.Succeeded},
		{name: "uploaded", objects: []client.Object{class(immediate)},
			volume:  newVolume(&cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}),
			reports: []task.Report{done()}, phase: cdiv1.Succeeded},
		{name: "in the way", objects: []client.Object{class(immediate), loneClaim()}, volume: newVolume(http),
			phase: cdiv1.Pending},
	}
}

func TestLoop(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			calm := newWorld(t, sc)
			calm.run()
			want := calm.outcome()
			if calm.volume().Status.Phase != sc.phase {
				t.Fatalf("phase is %s, want %s:\n%s", calm.volume().Status.Phase, sc.phase, want)
			}
			if limit := 20 * max(1, len(sc.reports)); calm.writes > limit {
				t.Errorf("%d writes, more than %d", calm.writes, limit)
			}
			for k := 1; k <= calm.writes; k++ {
				for _, harm := range []string{"refused", "crash"} {
					w := newWorld(t, sc)
					w.harmAt, w.harm = k, harm
					w.run()
					if diff := cmp.Diff(want, w.outcome()); diff != "" {
						t.Errorf("write %d of %d, %s: another end (-undisturbed +disturbed):\n%s", k, calm.writes, harm, diff)
					}
				}
			}
			before := calm.writes
			calm.run()
			if calm.writes != before {
				t.Errorf("%d writes although nothing was left to do", calm.writes-before)
			}
		})
	}
}

// world is a cluster of one volume.
type world struct {
	t      *testing.T
	sc     scenario
	api    client.Client // without harm: what the cluster itself uses
	r      *Reconciler
	clock  *clocktest.FakePassiveClock
	writes int
	harmAt int
	harm   string
	runs   int // workers that ended
}

var errHarm = errors.New("harm done by the test")

// scheme is made once and holds only what is used: the fake client goes through all of it for every request.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.PersistentVolumeClaim{},
		&corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolume{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Secret{},
		&corev1.SecretList{}, &corev1.Event{}, &corev1.EventList{})
	s.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{}, &storagev1.CSIDriver{})
	s.AddKnownTypes(cdiv1.SchemeGroupVersion, &cdiv1.DataVolume{}, &cdiv1.DataVolumeList{}, &cdiv1.CDI{}, &cdiv1.CDIList{},
		&cdiv1.StorageProfile{}, &cdiv1.StorageProfileList{}, &cdiv1.DataSource{})
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, cdiv1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(s, gv)
	}
	for _, kind := range []string{"VolumeSnapshot", "VolumeSnapshotClass"} {
		s.AddKnownTypeWithName(snapshotGroup.WithKind(kind), &unstructured.Unstructured{})
		s.AddKnownTypeWithName(snapshotGroup.WithKind(kind+"List"), &unstructured.UnstructuredList{})
	}
	return s
})

func newWorld(t *testing.T, sc scenario) *world {
	t.Helper()
	w := &world{t: t, sc: sc, clock: clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	b := fake.NewClientBuilder().WithScheme(scheme()).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&cdiv1.DataVolume{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{})
	for _, obj := range append(sc.objects, sc.volume) {
		b = b.WithObjects(obj.DeepCopyObject().(client.Object))
	}
	base := b.Build()
	w.api = base
	harmed := interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return w.write(func() error {
				obj.SetUID(types.UID(fmt.Sprintf("%T-%d", obj, w.runs)))
				obj.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
				return c.Create(ctx, obj, opts...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return w.write(func() error { return c.Delete(ctx, obj, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return w.write(func() error { return c.Apply(ctx, obj, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration,
			opts ...client.SubResourceApplyOption) error {
			return w.write(func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
		},
	})
	w.r = &Reconciler{
		reader: base, live: base, settings: config.NewReader(base), clock: w.clock, image: "berth",
		cluster: cluster.New(harmed, events.NewFakeRecorder(1000), w.clock),
		tokens:  allow{},
		ask: func(context.Context, string) (task.Progress, error) {
			return task.Progress{}, errors.New("nobody answers")
		},
	}
	return w
}

func (w *world) write(do func() error) error {
	w.writes++
	if w.writes == w.harmAt && w.harm == "refused" {
		return apierrors.NewInternalError(errHarm)
	}
	err := do()
	if err == nil && w.writes == w.harmAt && w.harm == "crash" {
		return errHarm // whatever would have followed in this reconcile does not happen: as if the process had died
	}
	return err
}

// run lets controller and cluster take turns until neither has anything left to do.
func (w *world) run() {
	for range 60 {
		before := w.writes
		result, err := w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: volumeName}})
		if err != nil && !errors.Is(err, errHarm) && !apierrors.IsInternalError(err) {
			w.t.Fatalf("reconcile: %v", err)
		}
		moved := w.turn()
		if result.RequeueAfter > 0 {
			w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
			moved = true
		}
		if err == nil && !moved && w.writes == before {
			return
		}
	}
	w.t.Fatal("the loop never came to rest")
}

// turn is what scheduler, binder and kubelet do meanwhile; it says whether they did anything.
func (w *world) turn() bool {
	pod, err := get[corev1.Pod](context.Background(), w.api, ns, "importer-"+volumeName)
	w.must(err)
	if w.sc.volume.Spec.Source.Upload != nil {
		pod, err = get[corev1.Pod](context.Background(), w.api, ns, "cdi-upload-"+volumeName)
		w.must(err)
	}
	return w.bind(pod) || w.work(pod) || w.serve() || w.snap()
}

// serve makes the server of a streamed clone ready.
func (w *world) serve() bool {
	pod, err := get[corev1.Pod](context.Background(), w.api, "images", "volume-uid-source-pod")
	w.must(err)
	if pod == nil || podReady(pod) {
		return false
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.2", Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}
	w.must(w.api.Status().Update(context.Background(), pod))
	return true
}

// snap makes a snapshot ready.
func (w *world) snap() bool {
	u, err := w.r.readSnapshot(context.Background(), ns, "clone-volume-uid")
	w.must(err)
	if u == nil || snapshotReady(u) {
		return false
	}
	w.must(unstructured.SetNestedField(u.Object, true, "status", "readyToUse"))
	w.must(w.api.Update(context.Background(), u))
	return true
}

func (w *world) bind(pod *corev1.Pod) bool {
	c, err := get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, volumeName)
	if err != nil {
		w.t.Fatal(err)
	}
	sc := w.sc.objects[0].(*storagev1.StorageClass)
	held := *sc.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && !w.sc.consumed && pod == nil
	if c == nil || c.Status.Phase == corev1.ClaimBound || held {
		return false
	}
	c.Status.Phase = corev1.ClaimBound
	w.must(w.api.Status().Update(context.Background(), c))
	return true
}

func (w *world) work(pod *corev1.Pod) bool {
	switch {
	case pod == nil, pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return false
	case pod.Status.Phase != corev1.PodRunning:
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	default:
		report := w.sc.reports[min(w.runs, len(w.sc.reports)-1)]
		w.runs++
		text, err := json.Marshal(report)
		w.must(err)
		pod.Status.Phase = corev1.PodFailed
		if report.Outcome == task.Done {
			pod.Status.Phase = corev1.PodSucceeded
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(text), FinishedAt: metav1.NewTime(w.clock.Now())},
		}}}
	}
	w.must(w.api.Status().Update(context.Background(), pod))
	return true
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *world) volume() *cdiv1.DataVolume {
	v, err := get[cdiv1.DataVolume](context.Background(), w.api, ns, volumeName)
	w.must(err)
	return v
}

// outcome is where the loop ended, without what may differ from run to run.
func (w *world) outcome() string {
	v := w.volume()
	for i := range v.Status.Conditions {
		v.Status.Conditions[i].LastHeartbeatTime, v.Status.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	c, err := get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, volumeName)
	w.must(err)
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	var names []string
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	var secrets corev1.SecretList
	w.must(w.api.List(context.Background(), &secrets))
	left := map[string]any{
		"status": v.Status, "finalizers": v.Finalizers, "pods": names, "secrets": len(secrets.Items), "tries": w.runs,
	}
	if c != nil {
		left["marks"], left["owners"], left["from"] = marksOn(c), c.OwnerReferences, c.Spec.DataSource
	}
	text, err := json.MarshalIndent(left, "", " ")
	w.must(err)
	return string(text)
}

func newVolume(source *cdiv1.DataVolumeSource) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: volumeName, UID: "volume-uid"},
		Spec: cdiv1.DataVolumeSpec{Source: source, PVC: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("local"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	}
}

func class(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "test", VolumeBindingMode: &mode}
}

func loneClaim() *corev1.PersistentVolumeClaim {
	v := newVolume(nil)
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: volumeName, UID: "claim-uid"}, Spec: *v.Spec.PVC,
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

// golden is a claim to clone.
func golden(namespace string) *corev1.PersistentVolumeClaim {
	c := loneClaim()
	c.Namespace, c.Name, c.UID = namespace, "golden", "golden-uid"
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return c
}

func cloneOf(namespace string) *cdiv1.DataVolume {
	return newVolume(&cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}})
}

// csi makes the class's provisioner a driver that takes snapshots.
func csi() []client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"driver": "test", "deletionPolicy": "Delete"}}
	u.SetGroupVersionKind(snapshotGroup.WithKind("VolumeSnapshotClass"))
	u.SetName("snap")
	return []client.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "test"}}, u}
}

// allow takes every proof.
type allow struct{}

func (allow) Verify(context.Context, string, token.Grant) error { return nil }
