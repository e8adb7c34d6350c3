// Package filltest is a cluster for the loop tests of what fills claims: an API server in memory, with scheduler, volume
// binder and kubelet played by a few lines each. Writes of the controller under test can be refused, or be the last thing
// it does before it dies; however it is disturbed, it must end in the same place.
//
// It does not know which controller it is for.
package filltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// GrantGroup is the API of ReferenceGrants.
var GrantGroup = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1beta1"}

// Scene describes a cluster at the beginning and how it behaves.
type Scene struct {
	Objects []client.Object
	// Reports are the reports of the workers, one after another; the last is repeated.
	Reports []task.Report
	// Consumed are claims of namespace Team that some other pod uses.
	Consumed []string
	// Later are objects that appear when all others have come to rest: a consumer that comes when a claim is held already.
	Later []client.Object
	// Home is the node that storage drivers clone on: what is to be made of a source elsewhere they refuse. Empty: they clone
	// everywhere.
	Home string
	// Ignorant: provisioners make a volume for a claim whatever its source says, as those that are no CSI drivers do.
	Ignorant bool
}

// Team is the namespace of the test's objects.
const Team = "team"

// Node is the node that every pod runs on.
const Node = "node1"

// World is a cluster.
type World struct {
	T     *testing.T
	API   client.Client // without harm: what the cluster itself uses
	Clock *clocktest.FakePassiveClock
	// Writer is the controller's.
	Writer *cluster.Writer
	Events *events.FakeRecorder
	// Injector makes faults in what the controller writes.
	faults.Injector
	// Tries counts workers that ended.
	Tries int

	scene  Scene
	keeper *podend.Keeper
	made   int // objects that the controller created
	later  int // objects of the scene that have appeared later
}

// scheme is made once and holds only what is used: the fake client goes through all of it for every request.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.PersistentVolumeClaim{},
		&corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeList{}, &corev1.Node{},
		&corev1.NodeList{}, &corev1.Secret{}, &corev1.SecretList{}, &corev1.Event{}, &corev1.EventList{}, &corev1.Namespace{})
	s.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{}, &storagev1.CSIDriver{})
	s.AddKnownTypes(cdiv1.SchemeGroupVersion, &cdiv1.DataVolume{}, &cdiv1.DataVolumeList{}, &cdiv1.CDI{}, &cdiv1.CDIList{},
		&cdiv1.StorageProfile{}, &cdiv1.StorageProfileList{}, &cdiv1.DataSource{}, &cdiv1.DataSourceList{},
		&cdiv1.VolumeImportSource{}, &cdiv1.VolumeUploadSource{}, &cdiv1.VolumeCloneSource{}, &cdiv1.VolumeCloneSourceList{},
		&cdiv1.DataImportCron{}, &cdiv1.DataImportCronList{})
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, cdiv1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(s, gv)
	}
	if err := errors.Join(volumesnapshot.AddToScheme(s), accessv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	s.AddKnownTypeWithName(GrantGroup.WithKind("ReferenceGrant"), &unstructured.Unstructured{})
	s.AddKnownTypeWithName(GrantGroup.WithKind("ReferenceGrantList"), &unstructured.UnstructuredList{})
	return s
})

// New makes a cluster.
func New(t *testing.T, scene Scene) *World {
	t.Helper()
	w := &World{
		T: t, scene: scene, Clock: clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		Events: events.NewFakeRecorder(1000),
	}
	b := fake.NewClientBuilder().WithScheme(scheme()).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&cdiv1.DataVolume{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{})
	b = b.WithIndex(&corev1.PersistentVolume{}, cacheindex.VolumeIndex, cacheindex.VolumeKeys)
	for _, i := range cacheindex.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	for _, obj := range scene.Objects {
		b = b.WithObjects(obj.DeepCopyObject().(client.Object))
	}
	base := b.Build()
	w.API = base
	records := diskaccess.New(base, base, cluster.New(base, w.Events, w.Clock))
	w.keeper = &podend.Keeper{Reader: base, Live: base, Cluster: cluster.New(base, w.Events, w.Clock), Finalizer: render.WorkerEnd, Before: records.ReleaseEnded}
	w.Writer = cluster.New(w.Client(base, w.admit), w.Events, w.Clock)
	return w
}

// admit gives an object what the API server would.
func (w *World) admit(obj client.Object) error {
	w.made++
	obj.SetUID(types.UID(fmt.Sprintf("%T-%d", obj, w.made)))
	obj.SetCreationTimestamp(metav1.NewTime(w.Clock.Now()))
	return nil
}

// Run lets controller and cluster take turns until neither has anything left to do.
func (w *World) Run(name string, r reconcile.Reconciler) {
	w.T.Helper()
	for range 80 {
		before := w.Writes
		result, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: Team, Name: name}})
		if err != nil && !faults.Caused(err) {
			w.T.Fatalf("reconcile: %v", err)
		}
		moved := w.Turn()
		if result.RequeueAfter > 0 {
			w.Clock.SetTime(w.Clock.Now().Add(result.RequeueAfter))
			moved = true
		}
		if err == nil && !moved && w.Writes == before {
			return
		}
	}
	w.T.Fatal("the loop never came to rest")
}

// WithFaults runs a scene undisturbed, then once for every write it makes with that write refused, and once with the controller
// dying right after it, and compares how it ends; then once more, to see that nothing is left to do. build makes the
// controller of a world; outcome is where it ended, without what may differ from run to run.
func WithFaults(t *testing.T, scene Scene, name string, build func(*World) reconcile.Reconciler, outcome func(*World) any) *World {
	t.Helper()
	calm := New(t, scene)
	controller := build(calm)
	calm.Run(name, controller)
	want := text(t, outcome(calm))
	for k := 1; k <= calm.Writes; k++ {
		for _, kind := range faults.Kinds {
			w := New(t, scene)
			w.At, w.Kind = k, kind
			w.Run(name, build(w))
			if diff := cmp.Diff(want, text(t, outcome(w))); diff != "" {
				t.Errorf("write %d of %d, %s: another end (-undisturbed +disturbed):\n%s", k, calm.Writes, kind, diff)
			}
		}
	}
	before := calm.Writes
	calm.Run(name, controller)
	if calm.Writes != before {
		t.Errorf("%d writes although nothing was left to do", calm.Writes-before)
	}
	return calm
}

func text(t *testing.T, outcome any) string {
	t.Helper()
	b, err := json.MarshalIndent(outcome, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Left returns which pods, claims and snapshots and how many secrets there are.
func (w *World) Left() map[string]any {
	left := map[string]any{"tries": w.Tries}
	for kind, list := range map[string]client.ObjectList{
		"pods": &corev1.PodList{}, "claims": &corev1.PersistentVolumeClaimList{}, "snapshots": &volumesnapshot.List{},
	} {
		w.Must(w.API.List(context.Background(), list))
		names := []string{}
		w.Must(meta.EachListItem(list, func(obj runtime.Object) error {
			names = append(names, obj.(client.Object).GetNamespace()+"/"+obj.(client.Object).GetName())
			return nil
		}))
		sort.Strings(names)
		left[kind] = names
	}
	var secrets corev1.SecretList
	w.Must(w.API.List(context.Background(), &secrets))
	left["secrets"] = len(secrets.Items)
	var disks accessv1.DiskAccessList
	w.Must(w.API.List(context.Background(), &disks))
	left["disks"] = len(disks.Items)
	return left
}

// Must fails the test on an error of the test's own.
func (w *World) Must(err error) {
	if err != nil {
		w.T.Helper()
		w.T.Fatal(err)
	}
}

// Get reads one object of namespace Team; nil means that there is none.
func Get[T any, P interface {
	*T
	client.Object
}](w *World, namespace, name string) P {
	w.T.Helper()
	obj := P(new(T))
	err := w.API.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.Must(err)
	return obj
}

// Silent is the answer of workers that cannot be reached.
func Silent(*corev1.Pod) (task.Progress, error) {
	return task.Progress{}, errors.New("nobody answers")
}

// Allow takes every proof, and makes any.
type Allow struct{}

// Verify takes it.
func (Allow) Verify(context.Context, string, token.Grant) error { return nil }

// Worker gives an upload worker files that are not read.
func (Allow) Worker(_ context.Context, name string) (map[string][]byte, error) {
	return map[string][]byte{"tls.crt": []byte(name)}, nil
}

// Issue makes files for every upload worker.
type Issue struct{}

// Worker makes them.
func (Issue) Worker(context.Context, string) (map[string][]byte, error) {
	return map[string][]byte{"tls.crt": nil}, nil
}

// DiskOf returns the identity of the disk of a volume.
func DiskOf(w *World, volume string) identity.Disk {
	w.T.Helper()
	return identity.Volume(Get[corev1.PersistentVolume](w, "", volume))
}
