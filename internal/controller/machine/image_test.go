package machine

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/instance"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// TestPlainRegistries: the registries that imports may read without TLS are those of images too, and no others.
func TestPlainRegistries(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := cdiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}, Spec: cdiv1.CDISpec{Config: &cdiv1.CDIConfigSpec{InsecureRegistries: []string{"reg:5000"}}}}
	r := &observed.Reader{Reader: diskstate.Reader{Cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cdi).Build()}}
	i := &kubevirt.VirtualMachineInstance{}
	for name, image := range map[string]string{"plain": "reg:5000/team/web:1", "other": "reg/team/web:1", "inside": "safe/reg:5000/web", "port": "reg:5001/web"} {
		i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{
			ContainerImage: &kubevirt.ContainerImageSource{Image: image}}})
	}
	s := &observed.Instance{Run: diskstate.Run{Object: i}}
	if err := r.Registries(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Pods.Plain, []string{"plain"}) {
		t.Errorf("without TLS: %v", s.Pods.Plain)
	}
}

// TestMirroredImages: images of volumes are read from the mirror of their registry, and without TLS if that is allowed there. One that is read with a
// Secret is read where it is named.
func TestMirroredImages(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := cdiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi", Annotations: map[string]string{names.RegistryMirrors: "quay.io/disks=reg:5000/mirror"}},
		Spec: cdiv1.CDISpec{Config: &cdiv1.CDIConfigSpec{InsecureRegistries: []string{"reg:5000"}}}}
	r := &observed.Reader{Reader: diskstate.Reader{Data: true, Cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cdi).Build()}}
	s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{
		{Name: "image", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "quay.io/disks/web:1"}}},
		{Name: "disk", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "quay.io/disks/debian:13"}}},
		{Name: "secret", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "quay.io/disks/web:1", ImagePullSecret: "mine"}}},
		{Name: "other", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "quay.io/other/debian:13"}}},
	}}}}}
	if err := r.Registries(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"image": "reg:5000/mirror/web:1", "disk": "reg:5000/mirror/debian:13"}
	if !maps.Equal(s.Pods.Mirrored, want) || !slices.Equal(s.Pods.Plain, []string{"image"}) {
		t.Errorf("read from %v, without TLS %v", s.Pods.Mirrored, s.Pods.Plain)
	}
}

// TestAgentless: a launcher that would wait for the node's agent is told if there is none, with the word to go; and only then.
func TestAgentless(t *testing.T) {
	agent := func(node string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: observed.AgentNamespace, Name: "agent-" + node, Labels: map[string]string{observed.AgentLabel: observed.AgentIs}},
			Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(p)
		return p
	}
	as := func(*corev1.Pod) {}
	image := []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "i"}}}}
	for name, c := range map[string]struct {
		agent   *corev1.Pod
		volumes []kubevirt.Volume
		want    bool
	}{
		"it runs":              {agent("here", as), image, false},
		"it starts":            {agent("here", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), image, false},
		"it has ended":         {agent("here", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), image, true},
		"another node's":       {agent("there", as), image, true},
		"a tenant's pod":       {agent("here", func(p *corev1.Pod) { p.Namespace = "tenant" }), image, true},
		"another pod of ours":  {agent("here", func(p *corev1.Pod) { p.Labels = nil }), image, true},
		"nobody waits for one": {agent("there", as), nil, false},
	} {
		r := &observed.Reader{Reader: diskstate.Reader{Cached: fake.NewClientBuilder().WithObjects(c.agent).Build()}}
		s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{}, Launcher: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "here"}}}}
		s.Object.Spec.Volumes = c.volumes
		if err := r.NodeAgent(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{render.AnnGo: "yes"}
		if c.want {
			want[render.AnnAgent] = "none"
		}
		if got := instance.GoAhead(s); !maps.Equal(got, want) {
			t.Errorf("%s: it is told %v", name, got)
		}
	}
}

// TestAloneIsSaid: a machine whose layers are its own says so, and why.
func TestAloneIsSaid(t *testing.T) {
	s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{}, Launcher: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}}}
	s.Launcher.Annotations, s.Launcher.Spec.NodeName = map[string]string{render.AnnGo: "yes"}, "here"
	s.Object.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "i"}}}}
	for why, want := range map[string]string{"": "", "its cache is full": "its layers were made for this machine alone: its cache is full"} {
		s.Returns.Copies = map[string]launcherapi.Copy{"root": {Mode: kubevirt.CopyOnWrite, Alone: why}}
		all := report.WithCopies(s, nil)
		if len(all) != 1 || all[0].Message != want {
			t.Errorf("%q: %+v", why, all)
		}
	}
}

// TestImageStays: a disk of a container image's layers is made on its node, and is not sent, whatever its copy is.
func TestImageStays(t *testing.T) {
	v := kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "i"}}}
	for _, mode := range []kubevirt.CopyMode{"", kubevirt.CopyOnWrite, kubevirt.CopyClone} {
		v.Copy = &kubevirt.DiskCopy{Mode: mode}
		if cause, _ := (&observed.Instance{}).FixedDisk(v); cause != state.CauseImage {
			t.Errorf("with a copy of mode %q it stays because of %q", mode, cause)
		}
	}
}
