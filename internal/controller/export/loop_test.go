package export

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/testing/kinds"
)

// world is a namespace with a claim, a machine that has it, and a snapshot of the machine.
type world struct {
	t      *testing.T
	api    client.Client
	r      *Reconciler
	clock  *clocktest.FakePassiveClock
	faults faults.Injector
}

func newWorld(t *testing.T, more ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kinds.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme, snapshotv1.AddToScheme, exportv1.AddToScheme, accessv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clock: clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceStorage: resource.MustParse("1Gi")}}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm"}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{
		{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "disk"}}},
		{Name: "seed", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "x"}}}}}}
	shot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "snap", UID: "snap"}}
	shot.Spec.Source.Name, shot.Status.ReadyToUse = "vm", ptr.To(true)
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vmsnapshot-content-snap"}}
	content.Spec.VolumeBackups = []snapshotv1.VolumeBackup{{VolumeName: "root", VolumeSnapshotName: ptr.To("cut"),
		PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{Spec: claim.Spec}}}
	b := fake.NewClientBuilder().WithScheme(s).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&exportv1.VirtualMachineExport{}, &corev1.Pod{}).WithObjects(claim, vm, shot, content).WithObjects(more...)
	for _, i := range cacheindex.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	base := b.Build()
	w.api = base
	w.r = &Reconciler{reader: base, live: base, clock: w.clock, settings: config.NewReader(base), image: "worker",
		cluster: cluster.New(w.faults.Client(base, w.admit), events.NewFakeRecorder(1000), w.clock)}
	w.r.records = diskaccess.New(base, base, w.r.cluster)
	return w
}

func (w *world) admit(obj client.Object) error {
	obj.SetUID(types.UID("made-" + obj.GetName()))
	obj.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	return nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func of(kind, name string) *exportv1.VirtualMachineExport {
	groups := map[string]string{exportv1.Machine: "kubevirt.io", exportv1.Snapshot: "snapshot.kubevirt.io", exportv1.Claim: ""}
	return &exportv1.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "out", UID: "out"},
		Spec: exportv1.VirtualMachineExportSpec{Source: corev1.TypedLocalObjectReference{APIGroup: ptr.To(groups[kind]), Kind: kind, Name: name}}}
}

// run reconciles until the export says nothing new; the kubelet starts what is made.
func (w *world) run(e *exportv1.VirtualMachineExport) *exportv1.VirtualMachineExport {
	w.t.Helper()
	ctx := context.Background()
	key := client.ObjectKeyFromObject(e)
	if e.ResourceVersion == "" {
		e.CreationTimestamp = metav1.NewTime(w.clock.Now())
		w.must(w.api.Create(ctx, e))
	}
	last := ""
	for calm, turns := 0, 0; calm < 3; turns++ {
		if turns > 60 {
			w.t.Fatalf("the loop never came to rest: %s", last)
		}
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		if err != nil && !faults.Caused(err) {
			w.t.Fatalf("reconcile: %v", err)
		}
		w.kubelet()
		now := &exportv1.VirtualMachineExport{}
		read := w.api.Get(ctx, key, now)
		if apierrors.IsNotFound(read) {
			return nil
		}
		w.must(read)
		text, failed := json.Marshal(now.Status)
		w.must(failed)
		if string(text) == last && err == nil {
			calm++
		} else {
			calm, last = 0, string(text)
		}
		e = now
	}
	return e
}

func (w *world) kubelet() {
	var all corev1.PodList
	w.must(w.api.List(context.Background(), &all))
	for i := range all.Items {
		p := &all.Items[i]
		if p.DeletionTimestamp != nil { // it ends, and internal/controller/podend lets it go
			w.must(w.r.records.ReleaseEnded(context.Background(), p, func() error {
				p.Finalizers = nil
				return client.IgnoreNotFound(w.api.Update(context.Background(), p))
			}))
			continue
		}
		if p.Labels[render.LabelComponent] == render.RoleExport && p.Status.Phase == "" && len(p.Spec.SchedulingGates) == 0 {
			p.Status.Phase, p.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			w.must(w.api.Status().Update(context.Background(), p))
		}
	}
}

func (w *world) server() *corev1.Pod {
	w.t.Helper()
	p, err := cluster.Get[corev1.Pod](context.Background(), w.api, "team", "virt-export-out")
	w.must(err)
	return p
}

// end returns what is left of an export, without what is random.
func (w *world) end(e *exportv1.VirtualMachineExport) string {
	p := w.server()
	if e == nil || p == nil {
		w.t.Fatalf("there is no export or no server: %v %v", e, p)
	}
	var out []string
	for _, v := range e.Status.Links.Internal.Volumes {
		out = append(out, fmt.Sprint(v))
	}
	var claims corev1.PersistentVolumeClaimList
	var secrets corev1.SecretList
	var services corev1.ServiceList
	for _, list := range []client.ObjectList{&claims, &secrets, &services} {
		w.must(w.api.List(context.Background(), list))
	}
	for _, c := range claims.Items {
		out = append(out, c.Name, fmt.Sprint(c.Spec.DataSourceRef))
	}
	for _, s := range secrets.Items {
		out = append(out, s.Name, string(s.Type), s.OwnerReferences[0].Name)
	}
	for _, s := range services.Items {
		out = append(out, s.Name, fmt.Sprint(s.Spec.Selector))
	}
	if e.Status.Links.Internal.Cert != p.Annotations[render.AnnExportCA] || !strings.Contains(e.Status.Links.Internal.Cert, "BEGIN CERTIFICATE") {
		w.t.Error("the status has another authority than the server")
	}
	ca, err := json.Marshal(e.Status.Links.Internal.Cert)
	w.must(err)
	task := strings.ReplaceAll(p.Annotations[render.AnnTask], string(ca), "CA") // in the manifests; new with every server
	return strings.Join(append(out, string(e.Status.Phase), task, fmt.Sprint(p.Spec.Volumes), fmt.Sprint(e.Status.Links.Internal.Manifests)), "\n")
}

// TestCrashes: whatever write is refused, or is the controller's last, the export ends in the same place.
func TestCrashes(t *testing.T) {
	for kind, name := range map[string]string{exportv1.Claim: "disk", exportv1.Machine: "vm", exportv1.Snapshot: "snap"} {
		t.Run(kind, func(t *testing.T) {
			calm := newWorld(t)
			want := calm.end(calm.run(of(kind, name)))
			for at := 1; at <= calm.faults.Writes; at++ {
				for _, fault := range faults.Kinds {
					w := newWorld(t)
					w.faults.At, w.faults.Kind = at, fault
					if diff := cmp.Diff(want, w.end(w.run(of(kind, name)))); diff != "" {
						t.Errorf("write %d of %d, %s (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, fault, diff)
					}
				}
			}
		})
	}
}

func user(claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "user"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
}

// TestWaits: what cannot be exported says why, and nothing reads it; it continues when it can.
func TestWaits(t *testing.T) {
	says := func(t *testing.T, e *exportv1.VirtualMachineExport, phase exportv1.Phase, text string) {
		t.Helper()
		if e == nil || e.Status.Phase != phase || !strings.Contains(e.Status.Conditions[0].Message, text) || e.Status.Links != nil {
			t.Errorf("it is %+v, and should be %s: %s", e.Status, phase, text)
		}
	}
	t.Run("nothing there", func(t *testing.T) {
		w := newWorld(t)
		says(t, w.run(of(exportv1.Claim, "other")), exportv1.Pending, "there is no PersistentVolumeClaim other")
		says(t, newWorld(t).run(of(exportv1.Machine, "other")), exportv1.Pending, "there is no VirtualMachine other")
		says(t, newWorld(t).run(of(exportv1.Snapshot, "other")), exportv1.Pending, "there is no VirtualMachineSnapshot other")
		if w.server() != nil {
			t.Error("a server is there")
		}
	})
	t.Run("in use", func(t *testing.T) {
		w := newWorld(t, user("disk"))
		e := w.run(of(exportv1.Claim, "disk"))
		says(t, e, exportv1.Pending, "pod user uses PersistentVolumeClaim disk")
		w.must(w.api.Delete(context.Background(), user("disk")))
		if e = w.run(e); e.Status.Phase != exportv1.Ready {
			t.Errorf("nobody uses it, and it is %+v", e.Status)
		}
		w.must(w.api.Create(context.Background(), user("disk")))
		says(t, w.run(e), exportv1.Pending, "pod user uses")
		if w.server() != nil {
			t.Error("a disk that somebody may write is read")
		}
	})
	t.Run("running", func(t *testing.T) {
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm"}}
		says(t, newWorld(t, i).run(of(exportv1.Machine, "vm")), exportv1.Pending, "VirtualMachine vm runs")
	})
	t.Run("no volumes", func(t *testing.T) {
		vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "bare"}}
		vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
		says(t, newWorld(t, vm).run(of(exportv1.Machine, "bare")), exportv1.Skipped, "VirtualMachine bare has no volume")
	})
}

// TestExpires: an export whose time is over is gone.
func TestExpires(t *testing.T) {
	w := newWorld(t)
	e := of(exportv1.Claim, "disk")
	e.Spec.TTLDuration = &metav1.Duration{Duration: time.Minute}
	e = w.run(e)
	if e == nil || e.Status.Phase != exportv1.Ready || !e.Status.TTLExpirationTime.Time.Equal(w.clock.Now().Add(time.Minute)) {
		t.Fatalf("it is %+v", e)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	if e = w.run(e); e != nil {
		t.Errorf("its time is over, and it is there: %+v", e.Status)
	}
}

// TestToken: the token of an export that names none is made, and one that it names is the user's.
func TestToken(t *testing.T) {
	w := newWorld(t)
	e := of(exportv1.Claim, "disk")
	e.Spec.TokenSecretRef = ptr.To("mine")
	if e = w.run(e); *e.Status.TokenSecretRef != "mine" {
		t.Errorf("it is %s", *e.Status.TokenSecretRef)
	}
	var all corev1.SecretList
	w.must(w.api.List(context.Background(), &all))
	if len(all.Items) != 1 || all.Items[0].Type != corev1.SecretTypeTLS {
		t.Errorf("made: %v", all.Items)
	}
	w = newWorld(t)
	if e = w.run(of(exportv1.Claim, "disk")); *e.Status.TokenSecretRef != "export-out-token" {
		t.Errorf("it is %s", *e.Status.TokenSecretRef)
	}
	s, err := cluster.Get[corev1.Secret](context.Background(), w.api, "team", "export-out-token")
	if err != nil || s == nil || len(s.Data["token"]) < 20 || s.Type != TokenType {
		t.Errorf("the token is %v, %v", s, err)
	}
}
