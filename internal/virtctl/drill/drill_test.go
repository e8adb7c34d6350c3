package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	export "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

const copyName = "drill-web-abcde"

// lab is a cluster of a client's own memory with a copy in it: not a real one, test/e2e/snapshot has that.
type lab struct {
	vm   *kubevirt.VirtualMachine
	i    *kubevirt.VirtualMachineInstance
	disk *cdiv1.DataVolume
}

func newLab() *lab {
	meta := func(name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(uid)}
	}
	vm := &kubevirt.VirtualMachine{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"}, ObjectMeta: meta(copyName, "uid-vm")}
	Mark(&vm.ObjectMeta, copyName, "web")
	owner := []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: vm.Name, UID: vm.UID, Controller: ptr.To(true)}}
	i := &kubevirt.VirtualMachineInstance{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"}, ObjectMeta: meta(copyName, "uid-vmi")}
	i.OwnerReferences = owner
	d := &cdiv1.DataVolume{TypeMeta: metav1.TypeMeta{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume"}, ObjectMeta: meta(copyName+"-root", "uid-dv")}
	d.OwnerReferences = owner
	Mark(&d.ObjectMeta, copyName, "web")
	return &lab{vm: vm, i: i, disk: d}
}

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubevirt.AddToScheme, cdiv1.AddToScheme, accessv1.AddToScheme, export.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// client is a client of the lab as it is now.
func (l *lab) client(t *testing.T) *kube.Client {
	t.Helper()
	var all []runtime.Object
	if l.vm != nil {
		all = append(all, l.vm)
	}
	if l.i != nil {
		all = append(all, l.i)
	}
	if l.disk != nil {
		all = append(all, l.disk)
	}
	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: render.Machine{Instance: newLab().i}.PodName(render.Launcher), UID: "uid-pod",
		Labels: map[string]string{render.LabelCreatedBy: "uid-vmi"}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	return &kube.Client{Core: corefake.NewClientset(launcher), Dynamic: dynamicfake.NewSimpleDynamicClient(schemeOf(t), all...), Namespace: "team"}
}

// run is the watch of a drill whose cluster changes with each tick, which takes a minute of its clock.
func run(t *testing.T, o Order, says string, agent error, steps ...func(*lab)) (Outcome, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, n, now := newLab(), 0, time.Unix(1_700_000_000, 0)
	o.Name, o.UID, o.Disks, o.Since = copyName, "uid-vm", []string{copyName + "-root"}, now
	if o.Deadline == 0 {
		o.Deadline = time.Hour
	}
	w := &watcher{Order: o, console: &console{want: o.Line},
		agent: func(context.Context, string) error { return agent },
		logs: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(says)), nil
		},
	}
	w.now = func() time.Time { // it is asked once in each round
		if n < len(steps) {
			steps[n](l)
		}
		n++
		w.c = l.client(t)
		return now.Add(time.Duration(n) * time.Minute)
	}
	w.c = l.client(t)
	tick := make(chan time.Time)
	go func() {
		for {
			select {
			case tick <- now:
			case <-ctx.Done():
				return
			}
		}
	}()
	var said strings.Builder
	return w.watch(ctx, tick, &said), said.String()
}

func phase(p kubevirt.Phase) func(*lab) { return func(l *lab) { l.i.Status.Phase = p } }

func disks(p cdiv1.DataVolumePhase) func(*lab) { return func(l *lab) { l.disk.Status.Phase = p } }

func isReady(l *lab) {
	l.i.Status.Conditions = []kubevirt.Condition{{Type: "Ready", Status: corev1.ConditionTrue}}
}

// TestWatch: a drill passes when it has seen its sign and full disks, and says of every other end which it is.
func TestWatch(t *testing.T) {
	nothing := func(*lab) {}
	for name, row := range map[string]struct {
		order Order
		says  string
		agent error
		steps []func(*lab)
		want  Result
		text  string
	}{
		"by its probe": {Order{Sign: Probe}, "", nil, []func(*lab){phase(kubevirt.PhaseRunning), nothing, isReady, disks(cdiv1.Succeeded)}, Passed, "came up"},
		"by its agent": {Order{Sign: Agent}, "", nil, []func(*lab){disks(cdiv1.Succeeded), phase(kubevirt.PhaseRunning)}, Passed, "came up"},
		"booted only":  {Order{Sign: Agent, BootOnly: true}, "", nil, []func(*lab){phase(kubevirt.PhaseRunning)}, Passed, "came up"},
		"by a line": {Order{Sign: Console, Deadline: 100_000 * time.Hour, Line: regexp.MustCompile(`login: $`)}, "boot\nweb login: \n", nil,
			[]func(*lab){disks(cdiv1.Succeeded), phase(kubevirt.PhaseRunning)}, Passed, "came up"},
		"no agent":                        {Order{Sign: Agent, Deadline: 10 * time.Minute}, "", errors.New("no agent"), []func(*lab){phase(kubevirt.PhaseRunning)}, NotUp, "no agent"},
		"ready is not asked of the agent": {Order{Sign: Agent, Deadline: 9 * time.Minute}, "", errors.New("silent"), []func(*lab){phase(kubevirt.PhaseRunning), isReady}, NotUp, "silent"},
		"not full":                        {Order{Sign: Agent, Deadline: 9 * time.Minute}, "", nil, []func(*lab){phase(kubevirt.PhaseRunning)}, NotFull, "not full within 9m0s"},
		"a bad disk": {Order{Sign: Agent}, "", nil, []func(*lab){phase(kubevirt.PhaseRunning), func(l *lab) {
			l.disk.Status.Phase = cdiv1.Failed
			l.disk.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeReady, Message: "b3/root.qcow2 is damaged"}}
		}}, DiskFailed, "b3/root.qcow2 is damaged"},
		"it crashed":              {Order{Sign: Probe}, "", nil, []func(*lab){phase(kubevirt.PhaseRunning), phase(kubevirt.PhaseFailed)}, GuestEnded, "ended before"},
		"it ended when it was up": {Order{Sign: Agent}, "", nil, []func(*lab){phase(kubevirt.PhaseRunning), nothing, phase(kubevirt.PhaseSucceeded), disks(cdiv1.Succeeded)}, Passed, "came up"},
		"removed by another":      {Order{Sign: Probe}, "", nil, []func(*lab){phase(kubevirt.PhaseRunning), func(l *lab) { l.vm = nil }}, CopyRemoved, "somebody else"},
		"another of its name":     {Order{Sign: Probe}, "", nil, []func(*lab){func(l *lab) { l.vm.UID = "uid-2" }}, CopyRemoved, "somebody else"},
		"a disk of another":       {Order{Sign: Agent, Deadline: 9 * time.Minute}, "", nil, []func(*lab){func(l *lab) { l.disk.OwnerReferences = nil }}, Broken, "another one"},
	} {
		t.Run(name, func(t *testing.T) {
			got, said := run(t, row.order, row.says, row.agent, row.steps...)
			if got.Result != row.want || !strings.Contains(got.Message, row.text) {
				t.Errorf("got %+v, want %s %q\n%s", got, row.want, row.text, said)
			}
			if (got.Up > 0) != (got.Result == Passed || got.Result == NotFull || name == "a bad disk") {
				t.Errorf("up after %s", got.Up)
			}
		})
	}
}

// TestNotItsInstance: an instance that is not the copy's own shows nothing.
func TestNotItsInstance(t *testing.T) {
	got, _ := run(t, Order{Sign: Probe, Deadline: 5 * time.Minute}, "", nil, disks(cdiv1.Succeeded), phase(kubevirt.PhaseRunning), func(l *lab) {
		isReady(l)
		l.i.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: copyName, UID: "uid-else", Controller: ptr.To(true)}}
	}, func(*lab) {})
	if got.Result != NotUp {
		t.Errorf("%+v", got)
	}
}

// TestInterrupted: a drill that is interrupted says so at once.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("ctrl-c"))
	w := &watcher{Order: Order{Name: copyName, Deadline: time.Hour}, c: newLab().client(t), now: time.Now, console: &console{}}
	if got := w.watch(ctx, nil, io.Discard); got.Result != Interrupted || !strings.Contains(got.Message, "ctrl-c") {
		t.Errorf("%+v", got)
	}
}

// TestConsole: a guest writes what it likes; of that, a bounded part is kept, without what a terminal would obey.
func TestConsole(t *testing.T) {
	var text strings.Builder
	for n := range 100 {
		_, _ = fmt.Fprintf(&text, "line %d\r\n", n)
	}
	text.WriteString(strings.Repeat("x", 10<<20) + "needle\n\x1b[2Jcleared\n\xff\xfe last")
	k := &console{want: regexp.MustCompile("needle|^line 3$")}
	if err := k.read(strings.NewReader(text.String())); err != nil {
		t.Fatal(err)
	}
	found, last, _ := k.state()
	if !found || len(last) != lastLines || last[lastLines-2] != "[2Jcleared" || len(last[lastLines-3]) > longestLine || strings.Contains(last[lastLines-1], "\xff") {
		t.Errorf("found %v, %d lines: %.200q", found, len(last), last)
	}
	k = &console{want: regexp.MustCompile("needle")}
	if err := k.read(strings.NewReader(text.String())); err != nil {
		t.Fatal(err)
	}
	if found, _, _ := k.state(); found {
		t.Error("what is behind the longest line was looked at")
	}
}

// TestRemove: what a drill made goes, and nothing else that has its label, or its name.
func TestRemove(t *testing.T) {
	l := newLab()
	other := func(name, label, of string) *kubevirt.VirtualMachine {
		vm := l.vm.DeepCopy()
		vm.Name, vm.UID, vm.Labels, vm.Annotations = name, "uid-other", map[string]string{names.Drill: label}, map[string]string{names.DrillOf: of}
		return vm
	}
	served := &export.VirtualMachineExport{TypeMeta: metav1.TypeMeta{APIVersion: "export.kubevirt.io/v1beta1", Kind: "VirtualMachineExport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "restore-1", UID: "e"}}
	Mark(&served.ObjectMeta, copyName, "web")
	theirs := served.DeepCopy()
	theirs.Name, theirs.Annotations = "restore-2", map[string]string{names.DrillOf: "db"}
	c := &kube.Client{Core: corefake.NewClientset(), Namespace: "team", Dynamic: dynamicfake.NewSimpleDynamicClient(schemeOf(t), l.vm, served, theirs,
		other("clone-of-it", copyName, "web"), other("drill-db-abcde", "drill-db-abcde", "db"), other("labelled", "yes", "web"))}
	for range 2 { // it may be repeated
		if err := Sweep(t.Context(), c, c.In("prod"), "web", io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	left, err := kube.Machines.List(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, vm := range left {
		got = append(got, vm.Name)
	}
	slices.Sort(got)
	if want := []string{"clone-of-it", "drill-db-abcde", "labelled"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	exports, err := kube.Exports.List(t.Context(), c.In("prod"))
	if err != nil || len(exports) != 1 || exports[0].Name != "restore-2" {
		t.Errorf("%v %+v", err, exports)
	}
}

// TestRemoveWaits: a removal that does not come to an end says what is left.
func TestRemoveWaits(t *testing.T) {
	l := newLab() // nothing here deletes what belongs to a copy
	c := l.client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := Remove(ctx, c, copyName); err == nil || !strings.Contains(err.Error(), "DataVolume "+copyName+"-root") {
		t.Errorf("got %v", err)
	}
}

// TestName: the name of a copy is a name and the value of a label, whatever the machine is called.
func TestName(t *testing.T) {
	for _, machine := range []string{"web", strings.Repeat("a", 253), strings.Repeat("a", 31) + "-b", "a.b.c"} {
		if got := Name(machine); len(got) > 45 || strings.Contains(got, "--") || !strings.HasPrefix(got, "drill-") {
			t.Errorf("%s becomes %s", machine, got)
		}
	}
}
