package machine

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

// TestPlainRegistries: the registries that imports may read without TLS are those of images too, and no others.
func TestPlainRegistries(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := cdiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}, Spec: cdiv1.CDISpec{Config: &cdiv1.CDIConfigSpec{InsecureRegistries: []string{"reg:5000"}}}}
	r := &Reconciler{reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cdi).Build()}
	i := &kubevirt.VirtualMachineInstance{}
	for name, image := range map[string]string{"plain": "reg:5000/team/web:1", "other": "reg/team/web:1", "inside": "safe/reg:5000/web", "port": "reg:5001/web"} {
		i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{
			ContainerImage: &kubevirt.ContainerImageSource{Image: image}}})
	}
	s := &run{instance: i}
	if err := r.observeRegistries(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.pods.Plain, []string{"plain"}) {
		t.Errorf("without TLS: %v", s.pods.Plain)
	}
}

// TestImageStays: a disk of a container image's layers is made on its node, and is not sent, whatever its copy is.
func TestImageStays(t *testing.T) {
	v := kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "i"}}}
	for _, mode := range []kubevirt.CopyMode{"", kubevirt.CopyOnWrite, kubevirt.CopyClone} {
		v.Copy = &kubevirt.DiskCopy{Mode: mode}
		if cause, _ := (&run{}).fixedDisk(v); cause != state.CauseImage {
			t.Errorf("with a copy of mode %q it stays because of %q", mode, cause)
		}
	}
}
