package evacuate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corefake "k8s.io/client-go/kubernetes/fake"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// TestCancel: the migrations that were made to empty a node end, machines that wait for their next try are asked no more, and all others are
// left alone.
func TestCancel(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	leaving := func(name, node string) *kubevirt.VirtualMachineInstance {
		i := guest(name, node, corev1.ConditionTrue, "us")
		i.Status.EvacuationNodeName = node
		return i
	}
	migration := func(name, of, node string, phase kubevirt.MigrationPhase) *kubevirt.VirtualMachineInstanceMigration {
		m := &kubevirt.VirtualMachineInstanceMigration{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstanceMigration"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Annotations: map[string]string{kubevirt.AnnEvacuation: node}}}
		m.Spec.VMIName, m.Status.Phase = of, phase
		return m
	}
	waits, other, left := leaving("waits", "worker"), leaving("other", "elsewhere"), leaving("left", "worker")
	objects := dynamicfake.NewSimpleDynamicClient(scheme, leaving("moves", "worker"), waits, other, left, guest("stays", "worker", corev1.ConditionTrue, "us"),
		migration("running", "moves", "worker", kubevirt.MigrationRunning), migration("failed", "waits", "worker", kubevirt.MigrationFailed),
		migration("others", "other", "elsewhere", kubevirt.MigrationRunning), migration("person", "stays", "", kubevirt.MigrationRunning))
	marked, gone := launcherOf(waits), launcherOf(left)
	gone.Spec.NodeName = "elsewhere"
	for _, p := range []*corev1.Pod{marked, gone} {
		p.Annotations = map[string]string{render.AnnEvacuate: "yes", "else": "kept"}
	}
	core := corefake.NewClientset(marked, gone)
	c := &kube.Client{Core: core, Dynamic: objects, Namespace: "any"}
	var out strings.Builder
	if err := Cancel(t.Context(), c, Options{Node: "worker", Selector: labels.Everything()}, &out); err != nil {
		t.Fatal(err)
	}
	rest, err := kube.Migrations.List(t.Context(), c.In(""))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range rest {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, " "); got != "failed others person" {
		t.Errorf("migrations %s are left", got)
	}
	for _, p := range []*corev1.Pod{marked, gone} { // one has moved, and its eviction from that node was requested too
		pod, err := core.CoreV1().Pods("team").Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil || (pod.Annotations[render.AnnEvacuate] == "") != (p == marked) || pod.Annotations["else"] != "kept" {
			t.Errorf("launcher %s: %v %v", p.Name, pod.Annotations, err)
		}
	}
	for _, want := range []string{"team/moves stays", "team/waits stays", "kubectl uncordon worker"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "team/other") || strings.Contains(out.String(), "team/stays") {
		t.Errorf("it speaks of others:\n%s", out.String())
	}
}
