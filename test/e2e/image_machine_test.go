//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// imageFile is a file of an image that a test makes.
type imageFile struct {
	name, text string
	mode       int64
	owner      int
}

// pushImage makes an image, a layer of each list of files, and puts it into a registry of its own, which counts the bytes that it sends.
func (b *bed) pushImage(config v1.Config, arch string, layers ...[]imageFile) (ref string, sent *atomic.Int64) {
	b.T.Helper()
	var all [][]byte
	for _, files := range layers {
		var packed bytes.Buffer
		w := tar.NewWriter(&packed)
		for _, f := range files {
			b.must(w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), Typeflag: tar.TypeReg}))
			_, err := io.WriteString(w, f.text)
			b.must(err)
		}
		b.must(w.Close())
		all = append(all, packed.Bytes())
	}
	return b.pushLayers(config, arch, all...)
}

// pushLayers is pushImage for layers that are archives already.
func (b *bed) pushLayers(config v1.Config, arch string, layers ...[]byte) (ref string, sent *atomic.Int64) {
	b.T.Helper()
	sent = &atomic.Int64{}
	hub := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	url, web := b.secure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hub.ServeHTTP(countedAnswer{w, sent}, r) }))
	ref = strings.TrimPrefix(url, "https://") + "/team/sample:1"
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: arch, OS: "linux", Config: config})
	b.must(err)
	for _, packed := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil })
		b.must(err)
		img, err = mutate.AppendLayers(img, l)
		b.must(err)
	}
	to, err := name.ParseReference(ref)
	b.must(err)
	b.must(remote.Write(to, img, remote.WithTransport(web.Transport)))
	return ref, sent
}

// countedAnswer counts what is sent.
type countedAnswer struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c countedAnswer) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// sampleProgram is the program of images/kernel/sample.
func (b *bed) sampleProgram() string {
	b.T.Helper()
	file := filepath.Join(b.T.TempDir(), "sample")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, "../../images/kernel/sample")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		b.T.Fatalf("build the sample: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	b.must(err)
	return string(text)
}

// imageMachine is a small machine that runs the program of an image once, with these arguments.
func (y *yard) imageMachine(name, image string, args ...string) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name},
		Spec: kubevirt.VirtualMachineSpec{RunStrategy: new(kubevirt.RunOnce), Template: &kubevirt.VirtualMachineInstanceTemplateSpec{}}}
	spec := &vm.Spec.Template.Spec
	spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("160Mi"))}
	spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
		ContainerImage: &kubevirt.ContainerImageSource{Image: image, CertConfigMap: "roots", Args: args}}}}
	return vm
}

// TestMachineFromImage: a machine runs the program of a container image, as the image and the machine say, serves its page, and ends with its status. A second
// machine on its node has the same layers, and fetches of them what proves that it may.
func TestMachineFromImage(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	b := &bed{Env: y.Env, kube: y.kube}
	ref, sent := b.pushImage(v1.Config{Entrypoint: []string{"/bin/sample"}, Cmd: []string{"exit=3"}, User: "app", WorkingDir: "/srv", Env: []string{"GREETING=image"}}, "amd64",
		[]imageFile{{"bin/sample", b.sampleProgram(), 0o755, 0}, {"etc/passwd", "app:x:1000:1001::/srv:/\n", 0o644, 0}, {"data/gone", "x", 0o644, 0}},
		[]imageFile{{"data/.wh.gone", "", 0o644, 0}, {"data/stays", "x", 0o644, 1000}})
	b.must(y.kube.Create(y.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "words"}, StringData: map[string]string{"greeting": "from a Secret"}}))
	vm := y.imageMachine("web", ref, "list=/data", "write=/tmp-of-mine", "serve=:80")
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Ports: []kubevirt.Port{{Port: 80}}}}
	spec.Volumes[0].ContainerImage.Env = []kubevirt.EnvVar{{Name: "GREETING", ValueFrom: &kubevirt.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "words"}, Key: "greeting"}}}}
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, `sample: args=["list=/data" "write=/tmp-of-mine" "serve=:80"] uid=1000 gid=1001 dir=/srv host=web greeting="from a Secret" terminal=true`)
	y.guestSays(vm, "sample: /data/stays")
	y.guestSays(vm, "sample: write /tmp-of-mine: open /tmp-of-mine: permission denied")
	y.guestSays(vm, `"msg":"the layers are the node's","layers":2`)
	instance := y.instance(y.Context(), vm)
	_, launchers := y.pods(y.Context(), vm)
	second := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "second"}, Spec: *vm.Spec.DeepCopy()}
	second.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: launchers[0].Spec.NodeName}
	second.Spec.Template.Spec.Volumes[0].ContainerImage.Args = []string{"exit=0"}
	first := sent.Swap(0)
	y.create(second)
	page := "http://" + launchers[0].Status.PodIP
	// The program serves a moment after it says so much.
	said := y.Run(framework.Pod{Name: "client", Script: fmt.Sprintf("until wget -qO- %s/; do sleep 1; done; wget -qO- '%s/exit?status=7' || true", page, page)})
	if !strings.Contains(said, "sample\n") {
		t.Errorf("its page is %q", said)
	}
	y.crashed(vm, instance, false)
	if got := why(vm); !strings.Contains(got, "the image's program ended with status 7") {
		t.Errorf("the machine does not say how its program ended: %s", got)
	}
	y.status(second, kubevirt.StatusStopped, boot)
	y.guestSays(second, `"msg":"the layers are the node's","layers":2,"made":0,"shared":2`)
	if again := sent.Load(); again == 0 || again > first/2 {
		t.Errorf("the first machine was sent %d bytes, and the second on its node %d", first, again)
	}
	b.layersCounted(launchers[0].Spec.NodeName)
}

// agentOf is the agent of a node, nil if it has none.
func (b *bed) agentOf(ctx context.Context, node string) *corev1.Pod {
	b.T.Helper()
	var agents corev1.PodList
	b.must(b.kube.List(ctx, &agents, client.InNamespace("berth-node")))
	at := slices.IndexFunc(agents.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node })
	if at < 0 {
		return nil
	}
	return &agents.Items[at]
}

// layersCounted: the agent of a node shows that layers were made there, and shared.
func (b *bed) layersCounted(node string) {
	b.T.Helper()
	agent := b.agentOf(b.Context(), node)
	if agent == nil {
		b.T.Fatalf("node %s has no agent", node)
	}
	page := newReader(b.Env).page(agent)
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

// TestMachineWithoutAgent: on a node without an agent of Berth a machine from an image makes its layers for itself and says why. The words are those of a
// launcher that waited for nobody: one that had waited would say so. It is not run beside other tests, which need the agents of their nodes.
func TestMachineWithoutAgent(t *testing.T) {
	y := newYard(t)
	b := &bed{Env: y.Env, kube: y.kube}
	ref, _ := b.pushImage(v1.Config{Entrypoint: []string{"/bin/sample"}}, "amd64", []imageFile{{"bin/sample", b.sampleProgram(), 0o755, 0}})
	node := y.ReadyNodes()[0]
	b.withoutAgent(node)
	vm := y.imageMachine("web", ref, "serve=:80")
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, `"msg":"the layers are made for this machine alone","why":"no agent of Berth runs on its node"`)
	y.guestSays(vm, `sample: args=["serve=:80"]`)
	y.Wait("the volume to say whose its layers are", patience, func(ctx context.Context) (bool, string) {
		s := statusOf(y.instance(ctx, vm), "root")
		return s != nil && s.Message == "its layers were made for this machine alone: no agent of Berth runs on its node", fmt.Sprintf("%+v", s)
	})
}

// withoutAgent keeps the agent off a node until the test ends. The agents of the others stay as they are: they are those of the DaemonSet again afterwards.
func (b *bed) withoutAgent(node string) {
	b.T.Helper()
	var was appsv1.DaemonSet
	b.must(b.kube.Get(b.Context(), types.NamespacedName{Namespace: "berth-node", Name: "berth-node"}, &was))
	less := was.DeepCopy()
	less.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	affinity := oneOf(node)
	affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Operator = corev1.NodeSelectorOpNotIn
	less.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity}
	change := less.DeepCopy()
	b.T.Cleanup(func() {
		b := &bed{Env: b.Outliving(), kube: b.kube}
		b.must(b.kube.Patch(b.Context(), was.DeepCopy(), client.MergeFrom(less)))
		b.Wait("the agent to be back", patience, func(ctx context.Context) (bool, string) {
			agent := b.agentOf(ctx, node)
			return agent != nil && agent.Status.Phase == corev1.PodRunning, fmt.Sprintf("%+v", agent)
		})
	})
	b.must(b.kube.Patch(b.Context(), change, client.MergeFrom(&was)))
	b.Wait("the agent to be gone", patience, func(ctx context.Context) (bool, string) {
		agent := b.agentOf(ctx, node)
		return agent == nil, fmt.Sprintf("%+v", agent)
	})
}
