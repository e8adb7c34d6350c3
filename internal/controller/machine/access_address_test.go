package machine

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

const target = "iqn.2026-01.example:golden.os"

// lun makes the volume of a claim a LUN, bound to the claim of a namespace.
func (w *world) lun(pv, namespace string) {
	w.t.Helper()
	v, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", pv)
	w.must(err)
	v.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: target, Lun: 1}
	v.Spec.ClaimRef.Namespace = namespace
	w.must(w.api.Update(context.Background(), v))
}

const (
	realServer = "10.0.0.1:3260" // where the volumes of claims are, and every name that is not fake
	fakeServer = "10.9.9.9:3260"
)

// logsInAt is where the launcher of this world finds the network disks of its machine.
func logsInAt(launcher *corev1.Pod) map[string][]string {
	m, _ := launcherpod.ReadMachine(launcher)
	if !m.LogIn {
		return nil
	}
	out := map[string][]string{}
	for _, v := range m.Spec.Volumes {
		switch {
		case v.ISCSI != nil && v.ISCSI.Host.Name == "fake":
			out[v.Name] = []string{fakeServer}
		case v.AtServer():
			out[v.Name] = []string{realServer}
		}
	}
	return out
}

// holder records that a launcher of another namespace has the LUN.
func (w *world) holder(h accessv1.Holder, ready corev1.ConditionStatus) {
	w.t.Helper()
	ctx := context.Background()
	h.Namespace, h.Machine, h.UID, h.Pod, h.PodUID, h.Node = "mallory", "vm", "run", "launcher", "launcher", "node1"
	w.must(w.api.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Pod, UID: h.PodUID},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}))
	id := lunOf(w.t, target)
	w.must(w.api.Create(ctx, &accessv1.DiskAccess{ObjectMeta: metav1.ObjectMeta{Name: id.Name()},
		Spec: accessv1.DiskAccessSpec{Disk: id.String(), Holders: []accessv1.Holder{h}}}))
}

// byAddress is a machine that names the LUN at a host.
func byAddress(host string) func(string, *kubevirt.VirtualMachineInstance) {
	return func(_ string, i *kubevirt.VirtualMachineInstance) {
		i.Spec.Volumes = []kubevirt.Volume{{Name: "lun", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{
			Host: kubevirt.NetworkHost{Name: host}, Portal: target, LUN: 1}}}}}
		i.Spec.Domain.Devices.Disks = nil
	}
}

// TestServersCount: between namespaces the server counts. A machine that names a LUN does not block a machine at another server,
// but one at the same server.
func TestServersCount(t *testing.T) {
	reads, writes := accessv1.ReadShared, accessv1.WriteExclusive
	for name, row := range map[string]struct {
		h     accessv1.Holder
		ready corev1.ConditionStatus
		mine  func(string, *kubevirt.VirtualMachineInstance) // nil: through a claim
		runs  bool
	}{
		"a claim, and a reader at another server":    {accessv1.Holder{Mode: reads, Servers: []string{fakeServer}}, corev1.ConditionTrue, nil, true},
		"a claim, and a writer at another server":    {accessv1.Holder{Mode: writes, Servers: []string{fakeServer}}, corev1.ConditionTrue, nil, true},
		"a claim, and a reader at the same server":   {accessv1.Holder{Mode: reads, Servers: []string{realServer}}, corev1.ConditionTrue, nil, false},
		"a claim, and a reader that has not started": {accessv1.Holder{Mode: reads}, corev1.ConditionFalse, nil, true},
		"a claim, and a reader that runs somewhere":  {accessv1.Holder{Mode: reads}, corev1.ConditionTrue, nil, false},
		"a claim, and another claim":                 {accessv1.Holder{Mode: reads, ClaimUID: "theirs"}, corev1.ConditionFalse, nil, false},
		"a claim, and another claim by another portal": {accessv1.Holder{Mode: writes, ClaimUID: "theirs", Servers: []string{fakeServer}},
			corev1.ConditionTrue, nil, false},
		"an address, and a writer at another server": {accessv1.Holder{Mode: writes, Servers: []string{fakeServer}}, corev1.ConditionTrue, byAddress("real"), true},
		"an address, and a writer at the same":       {accessv1.Holder{Mode: writes, Servers: []string{realServer}}, corev1.ConditionTrue, byAddress("real"), false},
		"an address, and a writer somewhere":         {accessv1.Holder{Mode: writes}, corev1.ConditionTrue, byAddress("real"), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := sharers(t, row.mine)
			if row.mine == nil {
				w.lun("pv-one", ns)
			}
			w.holder(row.h, row.ready)
			w.both([]string{"a"}, false)
			if runs := len(w.going()) == 1; runs != row.runs {
				t.Errorf("%v run; a says %s: %v", w.going(), w.named("a").Status.Reason, w.named("a").Status.Conditions)
			}
		})
	}
}

// TestLoginFirst: a machine that names a LUN is in no record before its launcher has logged in, says so, and is in it with the server after that.
func TestLoginFirst(t *testing.T) {
	w := sharers(t, byAddress("real"))
	says := w.r.Read.Ask
	w.r.Read.Ask = func(*corev1.Pod) (launcherapi.Returns, error) { return launcherapi.Returns{}, nil }
	w.both([]string{"a"}, false)
	if len(w.records()) != 0 || len(w.going()) != 0 {
		t.Errorf("it has not logged in: records %v, %v run", w.records(), w.going())
	}
	if text := w.named("a").Status.Conditions[0].Message; !strings.Contains(text, "logs in at the server of disk lun") {
		t.Errorf("it says %s", text)
	}
	w.r.Read.Ask = says
	w.both([]string{"a"}, false)
	record := w.records()[lunOf(t, target).String()]
	if len(w.going()) != 1 || len(record) != 1 || !slices.Equal(record[0].Servers, []string{realServer}) {
		t.Errorf("it has logged in: records %v, %v run", w.records(), w.going())
	}
}

// TestTwoNamesOfAnNBDServer: an export by two names of its server is one disk.
func TestTwoNamesOfAnNBDServer(t *testing.T) {
	w := sharers(t, func(name string, i *kubevirt.VirtualMachineInstance) {
		i.Spec.Volumes = []kubevirt.Volume{{Name: "export", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: "server-" + name}, Export: "disk"}}}}}
		i.Spec.Domain.Devices.Disks = nil
	})
	w.both([]string{"a", "b"}, false)
	if got := w.going(); len(got) != 1 {
		t.Errorf("%v run; records %v", got, w.records())
	}
}

// TestAWriterThatOnlyNamesTheDisk: a disk that a claim of another namespace is bound to cannot be written to by its address, nor kept from the claim.
func TestAWriterThatOnlyNamesTheDisk(t *testing.T) {
	for mode, runs := range map[string]bool{"": false, string(accessv1.WriteShared): false, string(accessv1.ReadShared): true} {
		t.Run(mode, func(t *testing.T) {
			w := sharers(t, func(_ string, i *kubevirt.VirtualMachineInstance) {
				byAddress("real")("", i)
				i.Spec.Volumes[0].AccessMode = kubevirt.AccessMode(mode)
			})
			w.lun("pv-one", "victim")
			w.both([]string{"a"}, false)
			i := w.named("a")
			if (len(w.going()) == 1) != runs || !runs && (i.Status.Reason != string(state.DiskInUse) ||
				!strings.Contains(i.Status.Conditions[0].Message, "of another namespace is bound to it") || strings.Contains(i.Status.Conditions[0].Message, "victim")) {
				t.Errorf("%v run; it says %s: %v", w.going(), i.Status.Reason, i.Status.Conditions)
			}
			if !runs && len(w.records()) != 0 {
				t.Errorf("records: %v", w.records())
			}
		})
	}
}

// TestAWriterAtAnotherServer: a machine may write to a disk of the name that another namespace's claim leads to, if it is at another server.
func TestAWriterAtAnotherServer(t *testing.T) {
	w := sharers(t, byAddress("fake"))
	w.lun("pv-one", "victim")
	w.both([]string{"a"}, false)
	if len(w.going()) != 1 {
		t.Errorf("%v run; it says %v", w.going(), w.named("a").Status.Conditions)
	}
}

// TestAnswersAboutServers: of what a launcher says about servers, only addresses of its own network disks are believed; and a volume that names
// another disk than the launcher was started with has no server.
func TestAnswersAboutServers(t *testing.T) {
	w := sharers(t, byAddress("real"))
	w.both([]string{"a"}, false)
	launcher, err := cluster.Get[corev1.Pod](context.Background(), w.api, ns, render.Machine{Instance: w.named("a")}.PodName(render.Launcher))
	w.must(err)
	said := map[string][]string{"lun": {realServer}, "other": {realServer}}
	if got := observed.Addresses(launcher, said); len(got) != 1 || !slices.Equal(got["lun"], []string{realServer}) {
		t.Errorf("believed: %v", got)
	}
	for _, bad := range [][]string{nil, {"storage.example:3260"}, {realServer, ""}, slices.Repeat([]string{realServer}, observed.MostServers+1)} {
		if got := observed.Addresses(launcher, map[string][]string{"lun": bad}); len(got) != 0 {
			t.Errorf("%v is believed: %v", bad, got)
		}
	}
	v := w.named("a").Spec.Volumes[0]
	if got := diskstate.ServersOf(launcher, v); !slices.Equal(got, []string{realServer}) {
		t.Errorf("it is at %v", got)
	}
	v.ISCSI = v.ISCSI.DeepCopy()
	v.ISCSI.Host.Name = "elsewhere"
	if got := diskstate.ServersOf(launcher, v); got != nil {
		t.Errorf("another disk is at %v", got)
	}
}

// lunOf is the identity of LUN 1 of a target.
func lunOf(t *testing.T, target string) identity.Disk {
	t.Helper()
	id, err := identity.Network(kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Portal: target, LUN: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
