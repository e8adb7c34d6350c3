package machine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/pkg/claim"
)

// media are the pod's volumes for copies, each with its class, or "" for a directory of the node.
func (w *world) media(machine string) map[string]string {
	out := map[string]string{}
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	for _, p := range pods.Items {
		for _, v := range p.Spec.Volumes {
			name, ok := strings.CutPrefix(v.Name, "berth-copy-")
			switch {
			case !ok || p.Labels["kubevirt.io/domain"] != machine:
			case v.Ephemeral != nil:
				spec := v.Ephemeral.VolumeClaimTemplate.Spec
				out[name] = *spec.StorageClassName
				size := spec.Resources.Requests[corev1.ResourceStorage]
				if need := launch.CopyFile(1 << 30); size.Value() < need || size.Value() > need+need/5 {
					w.t.Errorf("the claim of copy %s has %s for %d bytes", name, &size, need)
				}
			default:
				out[name] = ""
			}
		}
	}
	return out
}

// TestUsageTypes: a copy is on the medium it names, else on the default one, else on the node. A machine that names a medium
// that nobody offers has no pod, says which there are, and starts when somebody offers it.
func TestUsageTypes(t *testing.T) {
	ctx := context.Background()
	class := func(name string, annotation string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotation: "true"}}, Provisioner: "p"}
	}
	w := sharers(t, func(name string, i *kubevirt.VirtualMachineInstance) {
		gib := new(resource.MustParse("1Gi"))
		i.Spec.Volumes[0].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: gib}
		i.Spec.Volumes[1].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: gib, UsageType: "fast"}
		i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: "image", VolumeSource: kubevirt.VolumeSource{
			ContainerDisk: &kubevirt.ContainerDiskSource{Image: "i"}}})
	})
	says := func(want string) {
		t.Helper()
		i := w.named("a")
		if i.Status.Reason != string(state.UsageTypeMissing) || !strings.Contains(i.Status.Conditions[0].Message, want) {
			t.Errorf("it says %s: %s", i.Status.Reason, i.Status.Conditions[0].Message)
		}
		if got := w.media("a"); len(got) > 0 {
			t.Errorf("there is a pod with %v", got)
		}
		if n := len(i.Status.VolumeStatus); n != 2 {
			t.Errorf("%d volumes have a status: %+v", n, i.Status.VolumeStatus)
		}
	}
	w.both([]string{"a"}, true)
	says("usage type fast, which no StorageClass offers; none is offered at all: annotate a StorageClass with kubevirt.io/storage.usage-type.fast")
	w.must(w.api.Create(ctx, class("rust", claim.UsageTypePrefix+"slow")))
	w.both([]string{"a"}, true)
	says("there are: slow")
	w.must(w.api.Create(ctx, class("ssd", claim.UsageTypePrefix+"fast")))
	w.both([]string{"a"}, true)
	if got := w.media("a"); got["one"] != "" || got["two"] != "ssd" || got["image"] != "" || len(got) != 3 {
		t.Errorf("without a default class: %v", got)
	}
	w.must(w.api.Create(ctx, class("rest", claim.DefaultCopyClassAnnotation)))
	w.both([]string{"b"}, true)
	if got := w.media("b"); got["two"] != "rest" || got["one"] != "ssd" || got["image"] != "" || len(got) != 3 { // b has them in the other order
		t.Errorf("with a default class: %v", got)
	}
	// A medium that is no longer offered ends nobody: the launcher has it.
	for _, name := range []string{"ssd", "rust", "rest"} {
		c, err := cluster.Get[storagev1.StorageClass](ctx, w.api, "", name)
		w.must(err)
		w.must(w.api.Delete(ctx, c))
	}
	w.both([]string{"a", "b"}, true)
	if got := w.going(); len(got) != 2 {
		t.Errorf("%v run", got)
	}
}
