//go:build e2e

package machine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMachineFromImage: a machine runs the program of a container image, as the image and the machine say, serves its page, and ends with its status. A second
// machine on its node has the same layers, and fetches of them what proves that it may.
func TestMachineFromImage(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	ref, sent := b.PushImage(v1.Config{Entrypoint: []string{"/bin/sample"}, Cmd: []string{"exit=3"}, User: "app", WorkingDir: "/srv", Env: []string{"GREETING=image"}}, "amd64",
		[]fixture.ImageFile{{Name: "bin/sample", Text: b.BuildSampleProgram(), Mode: 0o755, Owner: 0}, {Name: "etc/passwd", Text: "app:x:1000:1001::/srv:/\n", Mode: 0o644, Owner: 0}, {Name: "data/gone", Text: "x", Mode: 0o644, Owner: 0}},
		[]fixture.ImageFile{{Name: "data/.wh.gone", Text: "", Mode: 0o644, Owner: 0}, {Name: "data/stays", Text: "x", Mode: 0o644, Owner: 1000}})
	b.NoError(y.Kube.Create(y.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "words"}, StringData: map[string]string{"greeting": "from a Secret"}}))
	vm := y.ImageMachine("web", ref, "list=/data", "write=/tmp-of-mine", "serve=:80")
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Ports: []kubevirt.Port{{Port: 80}}}}
	spec.Volumes[0].ContainerImage.Env = []kubevirt.EnvVar{{Name: "GREETING", ValueFrom: &kubevirt.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "words"}, Key: "greeting"}}}}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, `sample: args=["list=/data" "write=/tmp-of-mine" "serve=:80"] uid=1000 gid=1001 dir=/srv host=web greeting="from a Secret" terminal=true`)
	y.GuestSays(vm, "sample: /data/stays")
	y.GuestSays(vm, "sample: write /tmp-of-mine: open /tmp-of-mine: permission denied")
	y.GuestSays(vm, `"msg":"the layers are the node's","layers":2`)
	instance := y.InstanceOf(y.Context(), vm)
	_, launchers := y.PodsOf(y.Context(), vm)
	second := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "second"}, Spec: *vm.Spec.DeepCopy()}
	second.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: launchers[0].Spec.NodeName}
	second.Spec.Template.Spec.Volumes[0].ContainerImage.Args = []string{"exit=0"}
	first := sent.Swap(0)
	y.CreateMachine(second)
	page := "http://" + launchers[0].Status.PodIP
	// The program serves a moment after it says so much.
	said := y.Run(framework.Pod{Name: "client", Script: fmt.Sprintf("until wget -qO- %s/; do sleep 1; done; wget -qO- '%s/exit?status=7' || true", page, page)})
	if !strings.Contains(said, "sample\n") {
		t.Errorf("its page is %q", said)
	}
	crashed(y, vm, instance, false)
	if got := fixture.ReadyMessage(vm); !strings.Contains(got, "the image's program ended with status 7") {
		t.Errorf("the machine does not say how its program ended: %s", got)
	}
	y.WaitStatus(second, kubevirt.StatusStopped, fixture.BootPatience)
	y.GuestSays(second, `"msg":"the layers are the node's","layers":2,"made":0,"shared":2`)
	if again := sent.Load(); again == 0 || again > first/2 {
		t.Errorf("the first machine was sent %d bytes, and the second on its node %d", first, again)
	}
	layersCounted(b, launchers[0].Spec.NodeName)
}

// agentOf is the agent of a node, nil if it has none.
func agentOf(ctx context.Context, b *fixture.Volumes, node string) *corev1.Pod {
	b.T.Helper()
	var agents corev1.PodList
	b.NoError(b.Kube.List(ctx, &agents, client.InNamespace("berth-node")))
	at := slices.IndexFunc(agents.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node })
	if at < 0 {
		return nil
	}
	return &agents.Items[at]
}

// layersCounted: the agent of a node shows that layers were made there, and shared.
func layersCounted(b *fixture.Volumes, node string) {
	b.T.Helper()
	agent := agentOf(b.Context(), b, node)
	if agent == nil {
		b.T.Fatalf("node %s has no agent", node)
	}
	page := fixture.NewMetricsReader(b.Env).Page(agent)
	for name, least := range map[string]float64{"up": 1, "bytes": 1, "limit_bytes": 1 << 30, "made_total": 2, "shared_total": 2} {
		value := -1.0
		if _, rest, found := strings.Cut(page, "\nberth_layers_"+name+" "); found {
			line, _, _ := strings.Cut(rest, "\n")
			value, _ = strconv.ParseFloat(line, 64)
		}
		if value < least {
			b.T.Errorf("berth_layers_%s is %g, less than %g", name, value, least)
		}
	}
}

// TestMachineWithoutAgent: on a node without an agent of Berth a machine from an image makes its layers for itself and says why.
// The message is that of a launcher that did not wait: one that had waited would say so. It is not run beside other tests, which
// need the agents of their nodes.
func TestMachineWithoutAgent(t *testing.T) {
	y := fixture.NewMachines(t)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	ref, _ := b.PushImage(v1.Config{Entrypoint: []string{"/bin/sample"}}, "amd64", []fixture.ImageFile{{Name: "bin/sample", Text: b.BuildSampleProgram(), Mode: 0o755, Owner: 0}})
	node := y.ReadyNodes()[0]
	withoutAgent(b, node)
	vm := y.ImageMachine("web", ref, "serve=:80")
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, `"msg":"the layers are made for this machine alone","why":"no agent of Berth runs on its node"`)
	y.GuestSays(vm, `sample: args=["serve=:80"]`)
	y.Wait("the volume to say whose its layers are", fixture.Patience, func(ctx context.Context) (bool, string) {
		s := fixture.VolumeStatusOf(y.InstanceOf(ctx, vm), "root")
		return s != nil && s.Message == "its layers were made for this machine alone: no agent of Berth runs on its node", fmt.Sprintf("%+v", s)
	})
}

// withoutAgent keeps the agent off a node until the test ends. The agents of the others stay as they are: they are those of the DaemonSet again afterwards.
func withoutAgent(b *fixture.Volumes, node string) {
	b.T.Helper()
	var was appsv1.DaemonSet
	b.NoError(b.Kube.Get(b.Context(), types.NamespacedName{Namespace: "berth-node", Name: "berth-node"}, &was))
	less := was.DeepCopy()
	less.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	affinity := fixture.AffinityToNodes(node)
	affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Operator = corev1.NodeSelectorOpNotIn
	less.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity}
	change := less.DeepCopy()
	b.T.Cleanup(func() {
		b := &fixture.Volumes{Env: b.Outliving(), Kube: b.Kube}
		b.NoError(b.Kube.Patch(b.Context(), was.DeepCopy(), client.MergeFrom(less)))
		b.Wait("the agent to be back", fixture.Patience, func(ctx context.Context) (bool, string) {
			agent := agentOf(ctx, b, node)
			return agent != nil && agent.Status.Phase == corev1.PodRunning, fmt.Sprintf("%+v", agent)
		})
	})
	b.NoError(b.Kube.Patch(b.Context(), change, client.MergeFrom(&was)))
	b.Wait("the agent to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		agent := agentOf(ctx, b, node)
		return agent == nil, fmt.Sprintf("%+v", agent)
	})
}
