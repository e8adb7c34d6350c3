//go:build e2e

package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// limitMoves has guests sent slowly enough to disturb it, and given up when nothing arrives for that long. It applies to all
// machines, until the test ends.
func limitMoves(y *fixture.Machines, bandwidth string, still time.Duration) {
	y.T.Helper()
	k := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "berth", Name: kubevirt.ConfigurationName}}
	limits := &kubevirt.MigrationConfiguration{BandwidthPerMigration: new(resource.MustParse(bandwidth)), ProgressTimeout: new(int64(still.Seconds()))}
	err := y.Kube.Get(y.Context(), client.ObjectKeyFromObject(k), k)
	k.Spec.Configuration.MigrationConfiguration = limits
	switch {
	case err == nil:
		err = y.Kube.Update(y.Context(), k)
	case apierrors.IsNotFound(err):
		err = y.Kube.Create(y.Context(), k)
		y.T.Cleanup(func() {
			if err := y.Kube.Delete(context.Background(), k); err != nil {
				y.T.Error(err)
			}
		})
	}
	if err != nil {
		y.T.Fatal(err)
	}
}

// fullPools leaves too little room in the pools of these nodes for another volume. After again it is only taken where a volume is
// made, when a part of that has been written. The pods that do it give it back when they end, however they end.
func fullPools(y *fixture.Machines, nodes []string) (again, empty func()) {
	y.T.Helper()
	var pods []string
	for _, node := range nodes {
		name := "full-" + node
		pods = append(pods, name)
		// fallocate takes the room without writing it, so the machine's own disk is not filled.
		y.Start(framework.Pod{Name: name, Node: node, Script: `trap 'rm -f /pool/.full*; exit 0' TERM
			left() { df -k /pool | tail -n 1 | awk '{print $4}'; }
			images() { find /pool -name disk.img; }
			written() { for f in $(images); do grep -qxF "$f" /tmp/before || [ "$(du -k "$f" | cut -f1)" -lt 24576 ] || return 0; done; return 1; }
			images >/tmp/before
			fallocate -l $((($(left) - 49152) * 1024)) /pool/.full; echo full
			while [ -e /pool/.full ]; do sleep 1; done
			until written; do sleep 1; done
			n=0; while [ "$(left)" -gt 2048 ] && n=$((n + 1)) && fallocate -l $(($(left) / 2 * 1024)) /pool/.full$n; do :; done
			while :; do sleep 1; done`,
			Change: func(p *corev1.Pod) {
				p.Spec.TerminationGracePeriodSeconds = new(int64(60))
				p.Spec.Volumes = []corev1.Volume{{Name: "pool", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/localdisk"}}}}
				main := &p.Spec.Containers[0]
				main.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
				main.VolumeMounts = []corev1.VolumeMount{{Name: "pool", MountPath: "/pool"}}
			}})
	}
	for _, name := range pods {
		y.WaitRunning(name)
		y.Wait(name+" to have taken the room", fixture.Patience, func(context.Context) (bool, string) {
			out := y.Output(name)
			return strings.Contains(out, "full"), out
		})
	}
	again = func() {
		y.T.Helper()
		for _, name := range pods {
			y.Kubectl("exec", name, "--", "rm", "/pool/.full")
		}
	}
	return again, func() {
		y.T.Helper()
		y.Kubectl(append([]string{"delete", "pod"}, pods...)...)
	}
}

// stillThere: the guest is on this node, was not started again, and nothing else runs it.
func stillThere(y *fixture.Machines, vm *kubevirt.VirtualMachine, run types.UID, node string) {
	y.T.Helper()
	if i := y.InstanceOf(y.Context(), vm); i.UID != run || i.Status.Phase != kubevirt.PhaseRunning || i.Status.NodeName != node {
		y.T.Errorf("it is %s on %s and not on %s, started again: %t", i.Status.Phase, i.Status.NodeName, node, i.UID != run)
	}
	_, launchers := y.PodsOf(y.Context(), vm)
	for _, p := range launchers {
		if podReady(&p) != (p.Spec.NodeName == node) {
			y.T.Errorf("launcher %s on %s is ready: %t", p.Name, p.Spec.NodeName, podReady(&p))
		}
	}
}

// TestMigrationFaults: a machine with a local claim is to move while no other node has room for it, and says so; stays when what room there is
// is taken by others while it is sent; goes when there is some, while the controllers are killed; and is sent again from a node that is cut off meanwhile, and to one that is, and stays both times. There is one
// guest at any time, which is not started again and has its data. It is not run beside other tests: they would share the pools, the
// controllers and the bandwidth.
func TestMigrationFaults(t *testing.T) {
	y := fixture.NewMachines(t)
	limitMoves(y, "4Mi", fixture.MovePatience)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "256Mi"})
	vm := y.MovableMachine("moved",
		kubevirt.Volume{Name: "files", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "files"}}})
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.AnswerTo(vm, fmt.Sprintf("write serial=files %d %d 9", 64<<20, 96<<20)) // so that sending takes a while
	y.RunPattern(vm, "write", 1, "files")
	first := y.InstanceOf(t.Context(), vm)
	at := first.Status.NodeName

	claims := claimNames(y)
	again, empty := fullPools(y, slices.DeleteFunc(y.ReadyNodes(), func(n string) bool { return n == at }))
	m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "full"},
		Spec: kubevirt.MigrationSpec{VMIName: vm.Name}}
	if err := y.Kube.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	y.Wait("the migration to say that there is no room", fixture.MovePatience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err.Error()
		}
		says := fixture.MigrationSays(m)
		return !m.Ended() && strings.Contains(says, "enough free storage") && !strings.Contains(says, "\n"), fmt.Sprintf("%s: %s", m.Status.Phase, says)
	})
	stillThere(y, vm, first.UID, at)

	again()
	endMove(y, vm, m)
	if says := fixture.MigrationSays(m); m.Status.Phase != kubevirt.MigrationFailed || !strings.Contains(says, "disk files cannot be written at the target, which has no room for it") {
		t.Errorf("migration to a pool that runs full: %s: %s", m.Status.Phase, says)
	}
	stillThere(y, vm, first.UID, at)
	y.RunPattern(vm, "verify", 1, "files")
	leftClaims(y, claims)
	empty()

	limitMoves(y, "16Mi", fixture.MovePatience)
	m = beginMove(y, vm, "room")
	y.Kubectl("-n", "berth", "delete", "pod", "-l", "app.kubernetes.io/component=controller", "--grace-period=0", "--force")
	endMove(y, vm, m)
	if m.Status.Phase != kubevirt.MigrationSucceeded {
		t.Errorf("migration %s: %s", m.Status.Phase, fixture.MigrationSays(m))
	}
	at = m.Status.MigrationState.TargetNode
	stillThere(y, vm, first.UID, at)
	y.RunPattern(vm, "verify", 1, "files")
	y.RunPattern(vm, "write", 2, "files")
	controllersReady(y)
	claims = claimNames(y)

	limitMoves(y, "16Mi", 15*time.Second)
	m = beginMove(y, vm, "cut")
	heal := func() { framework.Kubebox(t, "node", "start", at) }
	t.Cleanup(heal)
	framework.Kubebox(t, "node", "cut", at)
	target := ofMove(y, vm, m)
	if target == nil {
		t.Fatalf("migration %s has no target: %s", m.Status.Phase, fixture.MigrationSays(m))
	}
	y.Stays("the target waits for the guest whose node is cut off", 20*time.Second, func(ctx context.Context) (bool, string) {
		p, err := y.Client.CoreV1().Pods(y.Namespace).Get(ctx, target.Name, metav1.GetOptions{})
		if err != nil {
			return true, err.Error()
		}
		return !podReady(p), "it is ready: it runs the guest"
	})
	heal()
	endMove(y, vm, m)
	if m.Status.Phase != kubevirt.MigrationFailed {
		t.Errorf("migration %s: %s", m.Status.Phase, fixture.MigrationSays(m))
	}
	stillThere(y, vm, first.UID, at)
	cutTarget(y, vm)
	stillThere(y, vm, first.UID, at)
	y.RunPattern(vm, "verify", 2, "files")
	if got := y.AnswerTo(vm, fmt.Sprintf("verify serial=files %d %d 9", 64<<20, 96<<20)); got != "same" {
		t.Errorf("the rest of disk files: %s", got)
	}
	leftClaims(y, claims)
	nothingOfMoves(y, vm)
	controllersReady(y)
}

// leftClaims: of a migration that failed no claim is left.
func leftClaims(y *fixture.Machines, claims []string) {
	y.T.Helper()
	y.Wait("nothing of the migration to be left", fixture.Patience, func(context.Context) (bool, string) {
		all := claimNames(y)
		return slices.Equal(all, claims), strings.Join(all, " ")
	})
}

// cutTarget cuts the node off that a guest is sent to. Its source notices by itself, and says so before the node is back.
func cutTarget(y *fixture.Machines, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	controllersReady(y)
	m := beginMove(y, vm, "cut-target")
	target := ofMove(y, vm, m)
	if target == nil {
		y.T.Fatalf("migration %s has no target: %s", m.Status.Phase, fixture.MigrationSays(m))
	}
	heal := func() { framework.Kubebox(y.T, "node", "start", target.Spec.NodeName) }
	y.T.Cleanup(heal)
	framework.Kubebox(y.T, "node", "cut", target.Spec.NodeName)
	y.Wait("the migration to end while its target is cut off", fixture.MovePatience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err.Error()
		}
		return m.Ended(), fmt.Sprintf("%s: %s", m.Status.Phase, fixture.MigrationSays(m))
	})
	heal()
	endMove(y, vm, m)
	if m.Status.Phase != kubevirt.MigrationFailed {
		y.T.Errorf("migration %s: %s", m.Status.Phase, fixture.MigrationSays(m))
	}
}

// controllersReady waits until all of them are there again: webhooks are served by them, and the next call may need one.
func controllersReady(y *fixture.Machines) {
	y.T.Helper()
	y.Kubectl("-n", "berth", "rollout", "status", "deployment/berth-controller", "--timeout=3m")
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
