//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/framework"
)

const (
	guestDir = "../../bin/images/guest"
	// boot is how long an emulated guest may take on a busy machine.
	boot = 6 * time.Minute

	consumerMark = "kubevirt.io/ephemeral-provisioning"
)

// yard is a test's namespace with what machines need.
type yard struct {
	*framework.Env
	kube client.WithWatch
	url  string // of the test guest's disk
	gate *gate
}

// gate is a web server that can be closed in the middle of a transfer.
type gate struct {
	files http.Handler
	open  chan struct{}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-g.open:
		g.files.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

func newYard(t *testing.T) *yard {
	t.Helper()
	env := framework.New(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme, snapshotv1.AddToScheme, clonev1.AddToScheme, migrationsv1.AddToScheme, accessv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := client.NewWithWatch(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(guestDir + "/" + testguest.QCOW2Compressed); err != nil {
		t.Fatalf("no test guest (make images makes it): %v", err)
	}
	g := &gate{files: http.FileServer(http.Dir(guestDir)), open: make(chan struct{})}
	return &yard{Env: env, kube: kube, gate: g, url: env.Serve(g) + "/" + testguest.QCOW2Compressed}
}

// machine is the example users start from, with the test guest in it.
func (y *yard) machine(name string) *kubevirt.VirtualMachine {
	y.T.Helper()
	return y.example("vm.yaml", name)
}

// example is a machine of the examples, with the test guest in it.
func (y *yard) example(file, name string) *kubevirt.VirtualMachine {
	y.T.Helper()
	text, err := os.ReadFile("../../examples/" + file)
	if err != nil {
		y.T.Fatal(err)
	}
	vm := &kubevirt.VirtualMachine{}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(string(text), "web", name)), vm); err != nil {
		y.T.Fatal(err)
	}
	vm.Namespace = y.Namespace
	vm.Spec.DataVolumeTemplates[0].Spec.Source.HTTP.URL = y.url
	return vm
}

func (y *yard) create(vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	if err := y.kube.Create(y.Context(), vm); err != nil {
		y.T.Fatal(err)
	}
}

// status waits until the machine says this.
func (y *yard) status(vm *kubevirt.VirtualMachine, want kubevirt.PrintableStatus, limit time.Duration) {
	y.T.Helper()
	y.Wait(fmt.Sprintf("machine %s to be %s", vm.Name, want), limit, func(ctx context.Context) (bool, string) {
		if err := y.kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, err.Error()
		}
		if vm.Status.PrintableStatus != want || want != kubevirt.StatusRunning && want != kubevirt.StatusPaused {
			return vm.Status.PrintableStatus == want, fmt.Sprintf("%s: %s", vm.Status.PrintableStatus, why(vm))
		}
		i := y.instance(ctx, vm) // says so itself, a moment before or after
		return i != nil && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("it is %s, and its instance %+v", want, i)
	})
}

func why(vm *kubevirt.VirtualMachine) string {
	for _, c := range vm.Status.Conditions {
		if c.Type == "Ready" {
			return c.Message
		}
	}
	return ""
}

// pods are the machine's pods: consumers and launchers.
func (y *yard) pods(ctx context.Context, vm *kubevirt.VirtualMachine) (consumers, launchers []corev1.Pod) {
	y.T.Helper()
	var list corev1.PodList
	if err := y.kube.List(ctx, &list, client.InNamespace(y.Namespace), client.MatchingLabels{"kubevirt.io/domain": vm.Name}); err != nil {
		y.T.Fatal(err)
	}
	for _, p := range list.Items {
		if _, ok := p.Annotations[consumerMark]; ok {
			consumers = append(consumers, p)
		} else {
			launchers = append(launchers, p)
		}
	}
	return consumers, launchers
}

// guestSays waits for a line of the guest's on its serial console.
func (y *yard) guestSays(vm *kubevirt.VirtualMachine, want string) {
	y.T.Helper()
	y.guestSaysAgain(vm, want, 1)
}

// guestSaysAgain waits until the guest has said it so many times.
func (y *yard) guestSaysAgain(vm *kubevirt.VirtualMachine, want string, times int) {
	y.T.Helper()
	y.guestSaysWithin(boot, vm, want, times)
}

func (y *yard) guestSaysWithin(limit time.Duration, vm *kubevirt.VirtualMachine, want string, times int) {
	y.T.Helper()
	ctx, cancel := context.WithTimeout(y.Context(), limit)
	defer cancel()
	log := y.console(ctx, vm)
	defer log.Close()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), want) {
			times--
		}
		if times == 0 {
			return
		}
	}
	y.T.Fatalf("the guest never said %q, or %d times too few", want, times)
}

// overhear listens to the guest until its launcher ends; the function says then whether it said so.
func (y *yard) overhear(vm *kubevirt.VirtualMachine, want string) func() bool {
	y.T.Helper()
	log, said := y.console(y.Context(), vm), make(chan bool, 1)
	go func() {
		defer log.Close()
		found := false
		for lines := bufio.NewScanner(log); lines.Scan(); {
			found = found || strings.Contains(lines.Text(), want)
		}
		said <- found
	}()
	return func() bool { return <-said }
}

// console is everything the guest said and says on its serial console.
func (y *yard) console(ctx context.Context, vm *kubevirt.VirtualMachine) io.ReadCloser {
	y.T.Helper()
	_, launchers := y.pods(ctx, vm)
	if len(launchers) != 1 {
		y.T.Fatalf("machine %s has %d launchers", vm.Name, len(launchers))
	}
	log, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(launchers[0].Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		y.T.Fatal(err)
	}
	return log
}

// claimNodes are the nodes of the machine's volumes.
func (y *yard) claimNodes(names ...string) map[string]bool {
	y.T.Helper()
	nodes := map[string]bool{}
	for _, n := range names {
		nodes[framework.VolumeNode(y.WaitBound(n))] = true
	}
	return nodes
}

// TestMachineBootsFromItsDisks is the seed's use case: both disks on one node, and the guest sees them.
func TestMachineBootsFromItsDisks(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	close(y.gate.open)
	vm := y.machine("boots")
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	nodes := y.claimNodes("boots-root", "boots-data")
	_, launchers := y.pods(t.Context(), vm)
	if len(nodes) != 1 || !nodes[launchers[0].Spec.NodeName] {
		t.Errorf("the disks are on %v, the guest on %s", nodes, launchers[0].Spec.NodeName)
	}
	y.guestSays(vm, "disk vdb bus=virtio serial=DATA size=1073741824")
	if err := y.kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.Wait("nothing of the machine to be left", boot, func(ctx context.Context) (bool, string) {
		var claims corev1.PersistentVolumeClaimList
		if err := y.kube.List(ctx, &claims, client.InNamespace(y.Namespace)); err != nil {
			return false, err.Error()
		}
		consumers, launchers := y.pods(ctx, vm)
		left := len(claims.Items) + len(consumers) + len(launchers)
		return left == 0, fmt.Sprintf("%d claims and pods", left)
	})
}

// TestMachineStepsInOrder watches the nine steps with the import held back, so that each can be seen.
func TestMachineStepsInOrder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	vm := y.machine("steps")
	seen := y.record(vm)
	y.create(vm)
	y.Wait("the import to have begun and the consumer to be gone", boot, func(ctx context.Context) (bool, string) {
		consumers, launchers := y.pods(ctx, vm)
		var v cdiv1.DataVolume
		err := y.kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: "steps-root"}, &v)
		return err == nil && v.Status.Phase == cdiv1.ImportInProgress && len(consumers) == 0 && len(launchers) == 1,
			fmt.Sprintf("%s, %d consumers, %d launchers", v.Status.Phase, len(consumers), len(launchers))
	})
	close(y.gate.open)
	y.status(vm, kubevirt.StatusRunning, boot)
	// The scheduler binds the claims before it binds the pod, so being placed has no place in this order.
	want := []string{"volume made", "held", "consumer made", "import scheduled", "consumer gone", "filled", "guest runs"}
	got := seen(want[len(want)-1])
	for _, extra := range extras {
		if slices.Contains(got, extra) {
			t.Errorf("there was %s; in order: %s", extra, strings.Join(got, ", "))
		}
	}
	i := 0
	for _, line := range got {
		if i < len(want) && line == want[i] {
			i++
		}
	}
	if i != len(want) {
		t.Errorf("step %q did not come in its place; in order: %s", want[i], strings.Join(got, ", "))
	}
}

// TestMachineNoNodeCanRun: nothing is bound and nothing starts until a node can run the machine; then it goes on.
func TestMachineNoNodeCanRun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	close(y.gate.open)
	vm := y.machine("picky")
	key := "e2e.berth.dev/" + y.Namespace
	vm.Spec.Template.Spec.NodeSelector = map[string]string{key: "yes"}
	y.create(vm)
	y.status(vm, kubevirt.StatusUnschedulable, patience)
	if !strings.Contains(why(vm), "node(s) didn't match Pod's node affinity/selector") {
		t.Errorf("the scheduler's own words are missing: %s", why(vm))
	}
	y.StaysPending("picky-root", 3*time.Second)
	node := y.ReadyNodes()[0]
	label := func(value *string) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, jsonOf(value))
		_, err := y.Client.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), node, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Errorf("label %s: %v", node, err)
		}
	}
	t.Cleanup(func() { label(nil) })
	label(new("yes"))
	y.status(vm, kubevirt.StatusRunning, boot)
	if nodes := y.claimNodes("picky-root", "picky-data"); len(nodes) != 1 || !nodes[node] {
		t.Errorf("the disks are on %v, the only node that may run the machine is %s", nodes, node)
	}
}

func jsonOf(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

// TestMachineKeepsItsRoom floods the machine's node with pods of the same priority while its disk is imported: the room
// the consumer was placed with must still be the launcher's.
func TestMachineKeepsItsRoom(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	vm := y.machine("roomy")
	node := y.ReadyNodes()[1]
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	vm.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")}
	y.fill(node, resource.MustParse("900m")) // one of the machine's two pods has room, not both
	y.create(vm)
	y.Wait("the consumer to be placed", patience, func(ctx context.Context) (bool, string) {
		consumers, launchers := y.pods(ctx, vm)
		placed := len(launchers) > 0 || len(consumers) > 0 && consumers[0].Spec.NodeName != ""
		return placed, fmt.Sprintf("%d consumers, %d launchers", len(consumers), len(launchers))
	})
	y.flood(node) // from now on the room is the machine's
	close(y.gate.open)
	y.status(vm, kubevirt.StatusRunning, boot)
}

// fill leaves no more CPU on the node than it is told.
func (y *yard) fill(node string, leave resource.Quantity) {
	y.T.Helper()
	var on corev1.Node
	var all corev1.PodList
	if err := errors.Join(y.kube.Get(y.T.Context(), client.ObjectKey{Name: node}, &on), y.kube.List(y.T.Context(), &all)); err != nil {
		y.T.Fatal(err)
	}
	free := on.Status.Allocatable.Cpu().DeepCopy()
	free.Sub(leave)
	for _, p := range all.Items {
		if p.Spec.NodeName != node || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, c := range p.Spec.Containers {
			free.Sub(*c.Resources.Requests.Cpu())
		}
	}
	if free.Sign() <= 0 {
		return // others did
	}
	y.Start(framework.Pod{Name: "filler", Script: "sleep 1000", Node: node, Change: func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: free}
	}})
}

// flood fills the node with pods of the same priority as any machine's, each small enough for a machine's room.
func (y *yard) flood(node string) {
	y.T.Helper()
	for i := range 12 {
		y.Start(framework.Pod{Name: fmt.Sprintf("rival-%d", i), Script: "sleep 1000", Node: node, Change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}
		}})
	}
	y.Wait("the node to be full", patience, func(ctx context.Context) (bool, string) {
		var list corev1.PodList
		if err := y.kube.List(ctx, &list, client.InNamespace(y.Namespace)); err != nil {
			return false, err.Error()
		}
		waiting := 0
		for _, p := range list.Items {
			if strings.HasPrefix(p.Name, "rival-") && p.Spec.NodeName == "" {
				waiting++
			}
		}
		return waiting > 0, fmt.Sprintf("%d rivals wait", waiting)
	})
}
