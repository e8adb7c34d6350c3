package evacuate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

func guest(name, node string, movable corev1.ConditionStatus, label string) *kubevirt.VirtualMachineInstance {
	i := &kubevirt.VirtualMachineInstance{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"of": label}}}
	i.Status.Phase, i.Status.NodeName = kubevirt.PhaseRunning, node
	i.Status.Conditions = []kubevirt.Condition{{Type: "LiveMigratable", Status: movable, Message: "its disk is fixed"}}
	return i
}

// launcherOf returns the pod that a guest is in, on the node that its instance is on.
func launcherOf(i *kubevirt.VirtualMachineInstance) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{NodeName: i.Status.NodeName}, ObjectMeta: metav1.ObjectMeta{
		Namespace: i.Namespace, Name: render.Machine{Instance: i}.PodName(render.Launcher),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(i, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}}}
}

// TestEvacuate: machines that can move are asked to and waited for; those that would be shut down, or cannot move, stay and are named;
// those of other nodes, those that were not meant, and those that have left and whose status is late, are left alone.
func TestEvacuate(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	guests := []*kubevirt.VirtualMachineInstance{guest("moves", "worker", yes, "us"), guest("fixed", "worker", no, "us"), guest("none", "worker", yes, "us"),
		guest("others", "worker", yes, "them"), guest("elsewhere", "other", yes, "us"), guest("late", "worker", yes, "us")}
	var instances, pods []runtime.Object
	for _, i := range guests {
		pod := launcherOf(i)
		if i.Name == "late" {
			pod.Spec.NodeName = "other"
		}
		instances, pods = append(instances, i), append(pods, pod)
	}
	objects := dynamicfake.NewSimpleDynamicClient(scheme, instances...)
	core := corefake.NewClientset(append(pods, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})...)
	asked, dryly := map[string]int{}, map[string]int{}
	core.PrependReactor("create", "pods/eviction", func(a clienttesting.Action) (bool, runtime.Object, error) {
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		dry := len(e.DeleteOptions.DryRun) > 0
		name := strings.Split(strings.TrimPrefix(e.Name, "virt-launcher-"), "-")[0]
		dryly[name]++
		if !dry {
			asked[name]++
		}
		if name == "none" {
			return true, nil, nil
		}
		if name == "moves" && !dry { // it moves at once, and it is said where the other is
			for _, name := range []string{"moves", "late"} {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(guest(name, "other", yes, "us"))
				if err != nil {
					t.Error(err)
				}
				if err := objects.Tracker().Update(kubevirt.GroupVersion.WithResource("virtualmachineinstances"), &unstructured.Unstructured{Object: content}, "team"); err != nil {
					t.Error(err)
				}
			}
		}
		return true, nil, apierrors.NewTooManyRequests("admission webhook denied the request: Eviction triggered evacuation of VMI", 0)
	})
	var out strings.Builder
	mine, err := labels.Parse("of=us")
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), &kube.Client{Core: core, Dynamic: objects, Namespace: "any"}, Options{Node: "worker", Cordon: true, Selector: mine}, &out)
	if err == nil || !strings.Contains(err.Error(), "team/fixed") || !strings.Contains(err.Error(), "team/none") || strings.Contains(err.Error(), "team/moves") {
		t.Errorf("it says %v", err)
	}
	if asked["moves"] == 0 || asked["none"] > 0 || asked["others"] > 0 || asked["elsewhere"] > 0 || dryly["late"] > 0 {
		t.Errorf("it asked for %v, and whether it could for %v", asked, dryly)
	}
	for _, want := range []string{"node/worker cordoned", "team/moves: has left", "team/late: has left", "team/none: it would be shut down", "team/fixed: stays: its disk is fixed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, out.String())
		}
	}
	node, err := core.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{})
	if err != nil || !node.Spec.Unschedulable {
		t.Errorf("the node takes pods: %v", err)
	}
}
