package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// The loop tests run both reconcilers against a cluster that plays data side, scheduler, binder, kubelet, guest and garbage
// collector. Each scenario is run once undisturbed, once with every write refused the first time, and once with the
// controller dying right after every write; the first ones also with each write disturbed alone. However it is disturbed,
// it must end in the same place.

const ns, vmName = "team", "web"

// scenario is a machine and how the cluster around it behaves.
type scenario struct {
	name     string
	strategy kubevirt.RunStrategy
	held     bool // its class waits for a first consumer
	nowhere  bool // no node will have it
	broken   bool // its disk cannot be filled
	// ends lists how its guests end, one after another; a guest after the last of them runs.
	ends []launcherapi.End
	// asks are done to the machine when the loop has come to rest, one after another.
	asks  []func(*world)
	alone bool // each write is disturbed alone, too
	local bool // its claims can be on one node only
	class bool // and have a class that makes others
	homes bool // and say so
	move  fate // of its migrations
	evict kubevirt.EvictionStrategy

	status kubevirt.PrintableStatus
	phase  kubevirt.Phase // of its instance; empty: it has none
}

func scenarios() []scenario {
	start := requests(kubevirt.StartRequest)
	stop, restart := requests(kubevirt.StopRequest), requests(kubevirt.StopRequest, kubevirt.StartRequest)
	running, stopped := kubevirt.StatusRunning, kubevirt.StatusStopped
	return []scenario{
		{name: "disks at once", strategy: kubevirt.RunAlways, status: running, phase: kubevirt.PhaseRunning},
		{name: "disks held", alone: true, strategy: kubevirt.RunAlways, held: true, status: running, phase: kubevirt.PhaseRunning},
		{name: "no node", strategy: kubevirt.RunAlways, held: true, nowhere: true,
			status: kubevirt.StatusUnschedulable, phase: kubevirt.PhasePending},
		{name: "no data", strategy: kubevirt.RunAlways, held: true, broken: true,
			status: kubevirt.StatusDataVolumeError, phase: kubevirt.PhasePending},
		{name: "halted", strategy: kubevirt.RunHalted, held: true, status: stopped},
		{name: "halted while it runs", strategy: kubevirt.RunAlways, held: true, asks: []func(*world){setStrategy(kubevirt.RunHalted)},
			status: stopped},
		{name: "powers off and is wanted", strategy: kubevirt.RunAlways, ends: []launcherapi.End{launcherapi.PoweredOff},
			status: running, phase: kubevirt.PhaseRunning},
		{name: "crashes twice", strategy: kubevirt.RunRerunOnFailure, ends: []launcherapi.End{launcherapi.Crashed, launcherapi.Refused},
			status: running, phase: kubevirt.PhaseRunning},
		{name: "powers off and is not wanted", strategy: kubevirt.RunRerunOnFailure, ends: []launcherapi.End{launcherapi.PoweredOff},
			status: stopped, phase: kubevirt.PhaseSucceeded},
		{name: "once, and crashes", strategy: kubevirt.RunOnce, ends: []launcherapi.End{launcherapi.Crashed}, status: stopped,
			phase: kubevirt.PhaseFailed},
		{name: "once, and stopped", strategy: kubevirt.RunOnce, asks: []func(*world){stop}, status: stopped},
		{name: "manual", strategy: kubevirt.RunManual, status: stopped},
		{name: "manual, started", strategy: kubevirt.RunManual, asks: []func(*world){start}, status: running, phase: kubevirt.PhaseRunning},
		{name: "manual, started paused", strategy: kubevirt.RunManual, asks: []func(*world){startPaused}, status: kubevirt.StatusPaused, phase: kubevirt.PhaseRunning},
		{name: "halted, started paused", alone: true, strategy: kubevirt.RunHalted, asks: []func(*world){startPaused}, status: kubevirt.StatusPaused, phase: kubevirt.PhaseRunning},
		{name: "manual, started and stopped", strategy: kubevirt.RunManual, asks: []func(*world){start, stop}, status: stopped},
		{name: "rerun, stopped", strategy: kubevirt.RunRerunOnFailure, asks: []func(*world){stop}, status: stopped},
		{name: "rerun, stopped and started", strategy: kubevirt.RunRerunOnFailure, asks: []func(*world){stop, start}, status: running,
			phase: kubevirt.PhaseRunning},
		{name: "restarted", strategy: kubevirt.RunAlways, held: true, asks: []func(*world){restart}, status: running, phase: kubevirt.PhaseRunning},
		{name: "a late stop", strategy: kubevirt.RunManual, asks: []func(*world){start, lateStop}, status: running, phase: kubevirt.PhaseRunning},
		{name: "a disk added", strategy: kubevirt.RunAlways, asks: []func(*world){addDisk(false)}, status: running, phase: kubevirt.PhaseRunning},
		{name: "a held disk added", strategy: kubevirt.RunAlways, asks: []func(*world){addDisk(true)}, status: running, phase: kubevirt.PhaseRunning},
		{name: "a disk added and removed", strategy: kubevirt.RunAlways, asks: []func(*world){addDisk(false), removeDisk},
			status: running, phase: kubevirt.PhaseRunning},
		{name: "a disk added, kept over a restart and removed", strategy: kubevirt.RunAlways,
			asks: []func(*world){addDisk(false), restart, removeDisk}, status: running, phase: kubevirt.PhaseRunning},
		{name: "deleted", strategy: kubevirt.RunAlways, held: true, asks: []func(*world){remove}},
	}
}

func TestLoop(t *testing.T) { loop(t, scenarios()) }

func loop(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			calm := newWorld(t, sc)
			if sc.alone {
				calm.taped = &tape{}
			}
			calm.run()
			want := calm.outcome()
			if vm := calm.vm(); vm != nil && vm.Status.PrintableStatus != sc.status || vm == nil && sc.status != "" {
				t.Fatalf("the machine is not %s:\n%s", sc.status, want)
			}
			if i := calm.instance(); i != nil && i.Status.Phase != sc.phase || i == nil && sc.phase != "" {
				t.Fatalf("the instance is not %s:\n%s", sc.phase, want)
			}
			if limit := 44 * (1 + len(sc.ends) + len(sc.asks)); calm.faults.Writes > limit {
				t.Errorf("%d writes, more than %d", calm.faults.Writes, limit)
			}
			for _, kind := range faults.Kinds {
				w := newWorld(t, sc)
				w.faults.At, w.faults.Kind = faults.Every, kind
				w.run()
				if diff := cmp.Diff(want, w.outcome()); diff != "" {
					t.Errorf("every write, %s: another end (-undisturbed +disturbed):\n%s", kind, diff)
				}
				for k := 1; sc.alone && k <= calm.faults.Writes; k++ {
					if diff := calm.disturbed(k, kind); diff != "" {
						t.Errorf("write %d of %d, %s: another end (-undisturbed +disturbed):\n%s", k, calm.faults.Writes, kind, diff)
					}
				}
			}
			calm.taped = nil
			before := calm.faults.Writes
			calm.settle()
			if calm.faults.Writes != before {
				t.Errorf("%d writes although nothing was left to do", calm.faults.Writes-before)
			}
		})
	}
}

// run lets the loop come to rest, and again after each thing that is asked.
func (w *world) run() {
	w.settle()
	for w.rest(); w.asked < len(w.sc.asks); w.rest() {
		ask := w.sc.asks[w.asked]
		w.asked++
		ask(w)
		w.settle()
	}
}

// settle lets controller and cluster take turns until neither has anything left to do.
func (w *world) settle() {
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: vmName}}
	waits := 0 // in a row in which nothing but time went by
	for range 200 {
		w.keepTape()
		if w.joins() {
			return
		}
		before, failed, later := w.faults.Writes, false, false
		for _, reconcile := range []func(context.Context, ctrl.Request) (ctrl.Result, error){w.r.VM.Reconcile, w.r.Instance.Reconcile, w.migrate, w.relocate, w.keep} {
			result, err := reconcile(context.Background(), request)
			if err != nil && !faults.Caused(err) && !apierrors.IsConflict(err) {
				w.t.Fatalf("reconcile: %v", err)
			}
			failed = failed || err != nil
			if result.RequeueAfter > 0 && result.RequeueAfter != report.DescribeAgain { // a look at the guest leads nowhere
				w.clock.SetTime(w.clock.Now().Add(min(result.RequeueAfter, time.Minute)))
				later = true
			}
		}
		waits++
		if w.turn() || failed || w.faults.Writes != before {
			waits = 0
		}
		if waits > 3 || waits > 0 && !later {
			return
		}
	}
	w.t.Fatalf("the loop never came to rest:\n%s", w.outcome())
}

// relocate looks at every claim whose data moved.
func (w *world) relocate(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if w.stay {
		return ctrl.Result{}, nil
	}
	due := map[types.NamespacedName]bool{}
	var volumes corev1.PersistentVolumeList
	w.must(w.api.List(ctx, &volumes))
	for i := range volumes.Items {
		if key, ok := replacedclaim.ClaimOf(&volumes.Items[i]); ok {
			due[key] = true
		}
	}
	var claims corev1.PersistentVolumeClaimList
	w.must(w.api.List(ctx, &claims))
	for i := range claims.Items {
		if slices.Contains(claims.Items[i].Finalizers, replacedclaim.Finalizer) {
			due[client.ObjectKeyFromObject(&claims.Items[i])] = true
		}
	}
	for key := range due {
		if _, err := w.moves.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// keep looks at every pod that is kept until its end.
func (w *world) keep(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var pods corev1.PodList
	w.must(w.api.List(ctx, &pods))
	for i := range pods.Items {
		if _, err := w.keeper.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])}); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// outcome is where the loop ended, without what may differ from run to run.
func (w *world) outcome() string {
	left := map[string]any{"guests": w.guests}
	if vm := w.vm(); vm != nil {
		vm.Status.StartFailure = nil // counts tries, and names an instance
		for i := range vm.Status.Conditions {
			vm.Status.Conditions[i].LastTransitionTime, vm.Status.Conditions[i].LastProbeTime = metav1.Time{}, nil
		}
		left["vm"], left["volumes"] = vm.Status, vm.Spec.Template.Spec.Volumes
	}
	if i := w.instance(); i != nil {
		i.Status.PhaseTransitionTimestamps, i.Status.ActivePods = nil, nil
		if m := i.Status.MigrationState; m != nil {
			m.StartTimestamp, m.EndTimestamp, m.TargetNodeDomainReadyTimestamp = nil, nil, nil
		}
		for n := range i.Status.Conditions {
			i.Status.Conditions[n].LastTransitionTime, i.Status.Conditions[n].LastProbeTime = metav1.Time{}, nil
		}
		for n := range i.Status.VolumeStatus {
			if h := i.Status.VolumeStatus[n].HotplugVolume; h != nil {
				h.AttachPodUID = ""
			}
		}
		left["instance"], left["disks"] = i.Status, i.Spec.Volumes
	}
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	names := map[string]string{}
	for _, p := range pods.Items {
		names[p.Name] = string(p.Status.Phase) + p.Annotations["berth.dev/disks"]
	}
	left["pods"] = names
	var volumes cdiv1.DataVolumeList
	w.must(w.api.List(context.Background(), &volumes))
	left["dataVolumes"] = len(volumes.Items)
	var records accessv1.DiskAccessList
	w.must(w.api.List(context.Background(), &records))
	held := map[string][]string{}
	for _, r := range records.Items {
		for _, h := range r.Spec.Holders {
			held[r.Spec.Disk] = append(held[r.Spec.Disk], fmt.Sprint(h.Machine, " ", h.Pod, " ", h.Mode))
		}
	}
	left["held"] = held
	left["claims"] = w.claimsLeft()
	left["migrations"] = w.migrations()
	left["budgets"] = w.budgets()
	var secrets corev1.SecretList
	w.must(w.api.List(context.Background(), &secrets))
	left["secrets"] = slices.ContainsFunc(secrets.Items, func(s corev1.Secret) bool { return w.instance() != nil && metav1.IsControlledBy(&s, w.instance()) })
	text, err := json.MarshalIndent(left, "", " ")
	w.must(err)
	return string(text)
}

// What is asked of a machine.

func (w *world) change(status bool, do func(*kubevirt.VirtualMachine)) {
	vm := w.vm()
	do(vm)
	if status {
		w.must(w.api.Status().Update(context.Background(), vm))
		return
	}
	w.must(w.api.Update(context.Background(), vm))
}

func requests(actions ...kubevirt.StateChangeAction) func(*world) {
	return func(w *world) {
		w.change(true, func(vm *kubevirt.VirtualMachine) {
			for _, a := range actions {
				q := kubevirt.StateChangeRequest{Action: a}
				if i := w.instance(); a == kubevirt.StopRequest && i != nil {
					q.UID = &i.UID
				}
				vm.Status.StateChangeRequests = append(vm.Status.StateChangeRequests, q)
			}
		})
	}
}

func startPaused(w *world) {
	w.change(true, func(vm *kubevirt.VirtualMachine) {
		vm.Status.StateChangeRequests = []kubevirt.StateChangeRequest{{Action: kubevirt.StartRequest, Data: map[string]string{"paused": "true"}}}
	})
}

func lateStop(w *world) {
	w.change(true, func(vm *kubevirt.VirtualMachine) {
		vm.Status.StateChangeRequests = []kubevirt.StateChangeRequest{{Action: kubevirt.StopRequest, UID: ptr.To[types.UID]("another")}}
	})
}

func setStrategy(s kubevirt.RunStrategy) func(*world) {
	return func(w *world) { w.change(false, func(vm *kubevirt.VirtualMachine) { vm.Spec.RunStrategy = &s }) }
}

func addDisk(held bool) func(*world) {
	return func(w *world) {
		w.sc.held = held
		w.must(w.api.Create(context.Background(), &cdiv1.DataVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "extra", UID: "extra-uid"}}))
		w.change(true, func(vm *kubevirt.VirtualMachine) {
			vm.Status.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: &kubevirt.AddVolumeOptions{
				Name: "extra", Disk: &kubevirt.Disk{DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.BusSCSI}}},
				VolumeSource: &kubevirt.HotplugVolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "extra"}}}}}
		})
	}
}

func removeDisk(w *world) {
	w.change(true, func(vm *kubevirt.VirtualMachine) {
		vm.Status.VolumeRequests = []kubevirt.VolumeRequest{{RemoveVolumeOptions: &kubevirt.RemoveVolumeOptions{Name: "extra"}}}
	})
}

func remove(w *world) { w.must(w.api.Delete(context.Background(), w.vm())) }

func newMachine(s kubevirt.RunStrategy) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName, UID: "vm-uid"},
		Spec: kubevirt.VirtualMachineSpec{RunStrategy: &s, Template: &kubevirt.VirtualMachineInstanceTemplateSpec{}}}
	vm.Spec.Template.Spec.Domain.Memory = &kubevirt.Memory{Guest: ptr.To(resource.MustParse("128Mi"))}
	for _, d := range []string{"root", "data"} {
		vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, kubevirt.DataVolumeTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Name: vmName + "-" + d}})
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, kubevirt.Volume{Name: d,
			VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: vmName + "-" + d}}})
	}
	return vm
}

// has: the launcher was told of a disk.
func has(p *corev1.Pod, volume string) bool {
	var d launcherapi.Disks
	_ = json.Unmarshal([]byte(p.Annotations["berth.dev/disks"]), &d)
	_, keeps := d.Keeps[volume]
	return keeps || slices.ContainsFunc(d.Added, func(x kubevirt.Disk) bool { return x.Name == volume })
}
