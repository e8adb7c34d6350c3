package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"sigs.k8s.io/controller-runtime/pkg/event"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/testing/kinds"
)

// world is a namespace with a machine that runs, a tracker of it, and a claim for backups.
type world struct {
	t        *testing.T
	api      client.Client
	r        *Reconciler
	clock    *clocktest.FakePassiveClock
	faults   faults.Injector
	launcher *launcher
	// worker is what a worker leaves; nil: it goes on.
	worker func(task.BackUp) *task.Report
	// fetched is whether clients have everything of what is served.
	fetched bool
	// kills is how many workers are killed before one ends.
	kills int
}

// launcher is the launcher of the machine, as internal/launcher/moments is: it holds one moment, and records changes since the last complete one.
type launcher struct {
	asked    map[Question]bool
	holds    string // the backup
	moment   launcherapi.BackupMoment
	point    string
	recorded []string // checkpoints
	keys     string
	orders   []launcherapi.BackupOrder
	refuses  string
	later    string
	broken   string
	moments  int
}

// Order answers the second time that it is asked: an answer takes a while.
func (l *launcher) Order(_ *corev1.Pod, of Question, build func(context.Context) (launcherapi.BackupOrder, error), _ func()) (launcherapi.BackupMoment, error) {
	if !l.asked[of] {
		l.asked[of] = true
		return launcherapi.BackupMoment{}, probe.ErrNoAnswerYet
	}
	delete(l.asked, of)
	o, err := build(context.Background())
	if err != nil {
		return launcherapi.BackupMoment{}, err
	}
	return l.do(o)
}

func (l *launcher) do(o launcherapi.BackupOrder) (launcherapi.BackupMoment, error) {
	l.orders = append(l.orders, o)
	switch {
	case o.End:
		if l.holds != o.ID {
			return launcherapi.BackupMoment{}, nil
		}
		if l.holds = ""; o.Complete && l.point != "" {
			l.recorded = []string{l.point}
		}
		return launcherapi.BackupMoment{Broken: l.broken}, nil
	case l.refuses != "":
		return launcherapi.BackupMoment{}, &Refused{l.refuses}
	case l.later != "":
		return launcherapi.BackupMoment{Later: l.later}, nil
	case l.holds != "" && l.holds != o.ID:
		return launcherapi.BackupMoment{Busy: l.holds}, nil
	case l.holds == "":
		l.moments++
		l.holds, l.point = o.ID, o.Checkpoint
		l.moment = launcherapi.BackupMoment{Moment: fmt.Sprint("moment-", l.moments), Time: time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC), Port: 8083,
			Unquiesced: "no agent answers"}
		for _, v := range o.Volumes {
			l.moment.Disks = append(l.moment.Disks, launcherapi.BackupDisk{Volume: v, Target: "vda", Size: 1 << 30})
		}
		for _, c := range l.recorded {
			l.moment.Incremental = l.moment.Incremental || c == o.Since && o.Since != ""
		}
		if o.Since != "" && !l.moment.Incremental {
			l.moment.Full = "nothing recorded what changed"
		}
	}
	l.keys = o.Clients
	return l.moment, nil
}

const namespace = "team"

func instance() *kubevirt.VirtualMachineInstance {
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "instance"}}
	i.Status.Phase = kubevirt.PhaseRunning
	i.Spec = spec()
	return i
}

func spec() kubevirt.VirtualMachineInstanceSpec {
	var s kubevirt.VirtualMachineInstanceSpec
	s.Volumes = []kubevirt.Volume{
		{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "root"}}},
		{Name: "seed", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "x"}}}}
	s.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{}}}, {Name: "seed"}}
	return s
}

func launcherPod(i *kubevirt.VirtualMachineInstance) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: i.Namespace, Name: render.Machine{Instance: i}.PodName(render.Launcher), UID: "launcher",
		Labels:          map[string]string{render.LabelMachine: "virt-launcher", render.LabelCreatedBy: string(i.UID)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(i, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))},
		Annotations:     map[string]string{render.AnnMachine: `{"name":"web"}`},
	}}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Status.Phase, p.Status.PodIP, p.Status.ContainerStatuses = corev1.PodRunning, "10.0.0.7", []corev1.ContainerStatus{{}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

func newWorld(t *testing.T, more ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kinds.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme, backupv1.AddToScheme, accessv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clock: clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), launcher: &launcher{asked: map[Question]bool{}}}
	w.worker = func(b task.BackUp) *task.Report {
		return &task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed, Written: 7, Virtual: 1 << 30,
			Backup: &task.Written{Incremental: b.Parent != "", Compared: b.Compare, Lost: b.Lost, Full: b.Full, Manifest: "sha256:of-" + b.Checkpoint}}
	}
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "machine"}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: spec()}
	tracker := &backupv1.VirtualMachineBackupTracker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "daily", UID: "tracker"}}
	tracker.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: ptr.To("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	i := instance()
	b := fake.NewClientBuilder().WithScheme(s).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&backupv1.VirtualMachineBackup{}, &backupv1.VirtualMachineBackupTracker{}, &corev1.Pod{}).
		WithObjects(vm, i, launcherPod(i), tracker, claim("backups")).WithObjects(more...)
	for _, i := range cacheindex.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	base := b.Build()
	w.api = base
	w.r = &Reconciler{reader: base, live: base, clock: w.clock, settings: config.NewReader(base), image: "worker", guests: w.launcher,
		progress: w.progress, answered: make(chan event.GenericEvent, 1000),
		cluster: cluster.New(w.faults.Client(base, w.admit), events.NewFakeRecorder(1000), w.clock)}
	w.r.records = diskaccess.New(base, base, w.r.cluster)
	return w
}

func claim(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("claim-" + name)}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Status.Phase = corev1.ClaimBound
	return c
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

// of returns a backup of the machine, or of its tracker.
func of(name, kind string, changes ...func(*backupv1.VirtualMachineBackup)) *backupv1.VirtualMachineBackup {
	group, source := "kubevirt.io", "web"
	if kind == backupv1.Tracker {
		group, source = "backup.kubevirt.io", "daily"
	}
	b := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "0000000")}}
	b.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: source}
	b.Spec.PvcName = ptr.To("backups")
	for _, c := range changes {
		c(b)
	}
	return b
}

// run reconciles until the backup says nothing new; the kubelet runs what is made.
func (w *world) run(b *backupv1.VirtualMachineBackup) *backupv1.VirtualMachineBackup {
	w.t.Helper()
	ctx := context.Background()
	key := client.ObjectKeyFromObject(b)
	if b.ResourceVersion == "" {
		b.CreationTimestamp = metav1.NewTime(w.clock.Now())
		w.must(w.api.Create(ctx, b))
	}
	last := ""
	for calm, turns := 0, 0; calm < 7; turns++ {
		if turns > 200 {
			w.t.Fatalf("the loop never came to rest: %s", last)
		}
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		if err != nil && !faults.Caused(err) {
			w.t.Fatalf("reconcile: %v", err)
		}
		w.kubelet()
		now := &backupv1.VirtualMachineBackup{}
		read := w.api.Get(ctx, key, now)
		if apierrors.IsNotFound(read) {
			return nil
		}
		w.must(read)
		text, failed := json.Marshal(now)
		w.must(failed)
		if string(text) == last && err == nil {
			calm++
		} else {
			calm, last = 0, string(text)
		}
		b = now
	}
	return b
}

// kubelet runs workers, and ends those that are deleted.
func (w *world) kubelet() {
	var all corev1.PodList
	w.must(w.api.List(context.Background(), &all))
	for i := range all.Items {
		p := &all.Items[i]
		if p.DeletionTimestamp != nil {
			err := w.r.records.ReleaseEnded(context.Background(), p, func() error {
				p.Finalizers = nil
				return client.IgnoreNotFound(w.api.Update(context.Background(), p))
			})
			if !faults.Caused(err) { // it is tried again the next time
				w.must(err)
			}
			continue
		}
		if p.Labels[render.LabelComponent] != render.RoleBackup || len(p.Spec.SchedulingGates) > 0 {
			continue
		}
		switch p.Status.Phase {
		case "":
			p.Status.Phase = corev1.PodRunning
		case corev1.PodRunning:
			w.end(p)
		case corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown:
			continue
		}
		w.must(w.api.Status().Update(context.Background(), p))
	}
}

// progress is what workers say while they run.
func (w *world) progress(*corev1.Pod) (task.Progress, error) {
	stage := task.Transferring
	if w.fetched {
		stage = task.Finished
	}
	return task.Progress{Stage: stage, Done: 5 << 20}, nil
}

// end ends a worker, if it does.
func (w *world) end(p *corev1.Pod) {
	if w.kills > 0 {
		w.kills--
		p.Status.Phase = corev1.PodFailed
		return
	}
	var b task.BackUp
	w.must(json.Unmarshal([]byte(p.Annotations[render.AnnTask]), &b))
	if b.Serve != nil {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return
	}
	report := w.worker(b)
	if report == nil {
		return
	}
	text, err := json.Marshal(report)
	w.must(err)
	p.Status.Phase = map[bool]corev1.PodPhase{true: corev1.PodSucceeded, false: corev1.PodFailed}[report.Outcome == task.Done]
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(text)}}}}
}

// tracked is the tracker as it is.
func (w *world) tracked() *backupv1.VirtualMachineBackupTracker {
	w.t.Helper()
	t, err := cluster.Get[backupv1.VirtualMachineBackupTracker](context.Background(), w.api, namespace, "daily")
	w.must(err)
	return t
}

// left lists the pods and Secrets of backups.
func (w *world) left() []string {
	var out []string
	var pods corev1.PodList
	var secrets corev1.SecretList
	w.must(w.api.List(context.Background(), &pods, client.MatchingLabels{render.LabelComponent: render.RoleBackup}))
	w.must(w.api.List(context.Background(), &secrets))
	for _, p := range pods.Items {
		out = append(out, p.Name)
	}
	for _, s := range secrets.Items {
		out = append(out, s.Name)
	}
	return out
}

func conditions(b *backupv1.VirtualMachineBackup) string {
	out := ""
	for _, c := range b.Status.Conditions {
		out += fmt.Sprintf("%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return out
}
