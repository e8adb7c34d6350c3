package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "local"
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid", Annotations: map[string]string{
			annotationProvisioner: Provisioner, annotationNode: "node1",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func class(name string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: Provisioner, VolumeBindingMode: &mode}
}

func TestWanted(t *testing.T) {
	waits := class("local", storagev1.VolumeBindingWaitForFirstConsumer)
	immediate := class("immediate", storagev1.VolumeBindingImmediate)
	path := class("local-path", storagev1.VolumeBindingWaitForFirstConsumer)
	path.Provisioner = PathProvisioner
	foreign := &storagev1.StorageClass{Provisioner: "example.com/other"}
	noNode := func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, annotationNode) }
	for what, test := range map[string]struct {
		class  *storagev1.StorageClass
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"node chosen":             {waits, nil, true},
		"no node chosen yet":      {waits, noNode, false},
		"immediate needs no node": {immediate, noNode, true},
		"another provisioner's":   {foreign, nil, false},
		"not handed to us":        {immediate, func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, annotationProvisioner) }, false},
		"bound":                   {immediate, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, false},
		"being deleted":           {immediate, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, false},
		"a populator's": {immediate, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeImportSource"}
		}, false},
		"a populator's, of a class that looks at no source": {path, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[annotationProvisioner] = PathProvisioner
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeImportSource"}
		}, true},
		"no node chosen yet, of that class": {path, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[annotationProvisioner] = PathProvisioner
			delete(c.Annotations, annotationNode)
		}, false},
	} {
		if got := wanted(claim(test.change), test.class); got != test.want {
			t.Errorf("%s: %t, want %t", what, got, test.want)
		}
	}
}

func TestUnsupportedSaysWhatToUse(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	for want, change := range map[string]func(*corev1.PersistentVolumeClaim){
		plan.StaticClass: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block },
		"ReadWriteOnce": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		},
	} {
		if got := unsupported(claim(change)); !strings.Contains(got, want) {
			t.Errorf("got %q, want it to name %s", got, want)
		}
	}
	if got := unsupported(claim(nil)); got != "" {
		t.Errorf("an ordinary claim is refused: %s", got)
	}
}

// newProvisioner returns a provisioner that sees those claims and a cluster with one node.
func newProvisioner(t *testing.T, c *corev1.PersistentVolumeClaim, volumes ...*corev1.PersistentVolume) *provisioner {
	t.Helper()
	client := fake.NewClientset(c)
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	add := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	add(core.PersistentVolumeClaims().Informer().GetStore().Add(c))
	add(factory.Storage().V1().StorageClasses().Informer().GetStore().Add(class("local", storagev1.VolumeBindingWaitForFirstConsumer)))
	for _, v := range volumes {
		add(core.PersistentVolumes().Informer().GetStore().Add(v))
		add(client.Tracker().Add(v))
	}
	p := &provisioner{client: client, layout: plan.Layout{Dir: t.TempDir()}, events: record.NewFakeRecorder(10),
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(), nodes: core.Nodes().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister()}
	add(os.MkdirAll(p.layout.Node("node1"), 0o755))
	return p
}

func TestVolumeIsMadeOnTheChosenNode(t *testing.T) {
	p := newProvisioner(t, claim(nil))
	for range 2 { // as after a crash between the two steps
		if err := p.provisionClaim(t.Context(), "ns/c"); err != nil {
			t.Fatal(err)
		}
	}
	pv, err := p.client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-uid", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if hostname(pv) != "node1" || pv.Spec.ClaimRef.UID != "uid" {
		t.Errorf("the volume is on %q for claim %v", hostname(pv), pv.Spec.ClaimRef)
	}
	info, err := os.Stat(p.layout.Node("node1", pv.Spec.Local.Path))
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("its directory: %v, %v", info, err)
	}
}

func TestUnknownNodeIsNotMade(t *testing.T) {
	p := newProvisioner(t, claim(func(c *corev1.PersistentVolumeClaim) { c.Annotations[annotationNode] = "stranger" }))
	if err := p.provisionClaim(t.Context(), "ns/c"); err == nil {
		t.Error("a volume was made on a node that is not there")
	}
	if _, err := os.Stat(p.layout.Node("stranger")); err == nil {
		t.Error("the directory of a node that is not there was made")
	}
}

func TestOnlyReleasedVolumesAreDeleted(t *testing.T) {
	for phase, gone := range map[corev1.PersistentVolumePhase]bool{corev1.VolumeBound: false, corev1.VolumeReleased: true} {
		pv := localVolume("pvc-uid", "node1", filepath.Join(volumesDir, "pvc-uid"))
		pv.Annotations = map[string]string{annotationBy: Provisioner}
		pv.Status.Phase = phase
		p := newProvisioner(t, claim(nil), pv)
		dir := p.layout.Node("node1", volumesDir, "pvc-uid")
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := p.deleteVolume(t.Context(), "pvc-uid"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); os.IsNotExist(err) != gone {
			t.Errorf("%s: the directory is gone: %t, want %t", phase, os.IsNotExist(err), gone)
		}
	}
}
