//go:build e2e

package populate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// populated is a claim that names one of our sources.
type populated struct {
	name, class, size string
	kind, source      string
	from              string // the source's namespace, if it is another
	block             bool
	change            func(*corev1.PersistentVolumeClaim)
}

func populate(b *fixture.Volumes, p populated) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	mode, group := corev1.PersistentVolumeFilesystem, cdiv1.SchemeGroupVersion.Group
	if p.block {
		mode = corev1.PersistentVolumeBlock
	}
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: p.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &p.class, VolumeMode: &mode, Resources: fixture.StorageRequest(p.size),
			AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: &group, Kind: p.kind, Name: p.source},
		},
	}
	if p.from != "" {
		c.Spec.DataSourceRef.Namespace = &p.from
	}
	if p.change != nil {
		p.change(c)
	}
	b.CreateObject(c)
	return c
}

func importSource(b *fixture.Volumes, name, url string) {
	b.T.Helper()
	b.CreateObject(&cdiv1.VolumeImportSource{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name}, Spec: cdiv1.VolumeImportSourceSpec{
		Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}},
	}})
}

// TestPopulateImport: a claim is filled on the node that the scheduler chose for the pod that uses it, without any other
// consumer; one whose class binds at once is filled at once. Two claims of one pod are filled on one node.
func TestPopulateImport(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	importSource(b, "image", b.Web.URL+"/disk.img")
	populate(b, populated{name: "first", class: fixture.ClassWaits, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	populate(b, populated{name: "second", class: fixture.ClassWaits, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	populate(b, populated{name: "atonce", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	b.UntilPopulated("atonce")
	b.ClaimSays("first", "on the node of the first pod that uses it")
	if got := b.WorkersOf(b.Context()); len(got) != 0 {
		t.Errorf("workers %v although no pod needs the claims", got)
	}
	node := b.ReadyNodes()[1]
	b.Start(framework.Pod{Name: "user", Script: "true", Claims: []string{"first", "second"}, Node: node, User: fixture.GuestUser})
	b.WaitPhase("user", corev1.PodSucceeded)
	for _, name := range []string{"first", "second"} {
		c := b.UntilPopulated(name)
		if at := framework.VolumeNode(b.WaitBound(name)); at != node || c.Annotations[fixture.SelectedNodeAnnotation] != node {
			t.Errorf("claim %s is on %s (selected %s), its pod on %s", name, at, c.Annotations[fixture.SelectedNodeAnnotation], node)
		}
	}
	b.Delete("user")
	for _, name := range []string{"first", "second", "atonce"} {
		b.BeginsWith(name, fixture.DiskImage(24))
	}
	b.WaitEvent("first", time.Minute, func(reason, _ string) bool { return reason == "PopulationSucceeded" })
	reapplied(b, "atonce")
}

// reapplied: applying a claim again as it was written changes nothing and causes no conflict.
func reapplied(b *fixture.Volumes, name string) {
	b.T.Helper()
	before := b.ReadClaim(name)
	again := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"storageClassName": *before.Spec.StorageClassName, "accessModes": []any{"ReadWriteOnce"},
		"resources":     map[string]any{"requests": map[string]any{"storage": before.Spec.Resources.Requests.Storage().String()}},
		"dataSourceRef": map[string]any{"apiGroup": "cdi.kubevirt.io", "kind": before.Spec.DataSourceRef.Kind, "name": before.Spec.DataSourceRef.Name},
	}}}
	again.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	again.SetNamespace(b.Namespace)
	again.SetName(name)
	if err := b.Kube.Apply(b.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner("gitops")); err != nil {
		b.T.Errorf("apply claim %s again: %v", name, err)
	}
	if after := b.ReadClaim(name); after.UID != before.UID || after.Annotations[fixture.PopulatedForAnnotation] == "" || after.Spec.VolumeName != before.Spec.VolumeName {
		b.T.Errorf("claim %s is another after it was applied again", name)
	}
}

// TestPopulateClone: a claim is cloned from what its source names at that moment, on one node and between two; the source
// is changed and the next claim follows, also a machine's, whose size is that of its source.
func TestPopulateClone(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	nodes := b.ReadyNodes()
	b.CreateGoldenClaim(fixture.ClassWaits, nodes[0])
	source := b.CreateCloneSource("os", "golden")
	populate(b, populated{name: "near", class: fixture.ClassWaits, size: "64Mi", kind: "VolumeCloneSource", source: "os"})
	populate(b, populated{name: "far", class: fixture.ClassWaits, size: "64Mi", kind: "VolumeCloneSource", source: "os"})
	// A pod that cannot start before the clone is there does not keep the clone waiting for its source.
	b.Start(framework.Pod{Name: "user-near", Script: "true", Claims: []string{"near", "golden"}, Node: nodes[0], User: fixture.GuestUser})
	b.Start(framework.Pod{Name: "user-far", Script: "true", Claims: []string{"far"}, Node: nodes[1], User: fixture.GuestUser})
	for _, name := range []string{"near", "far"} {
		b.WaitPhase("user-"+name, corev1.PodSucceeded)
		b.UntilPopulated(name)
		b.Delete("user-" + name)
		b.BeginsWith(name, fixture.DiskImage(24))
	}

	b.Web.Put("/newer.img", fixture.DiskImage(16))
	importSource(b, "newer", b.Web.URL+"/newer.img")
	populate(b, populated{name: "golden2", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "newer"})
	b.UntilPopulated("golden2")
	before := source.DeepCopy()
	source.Spec.Source.Name = "golden2"
	if err := b.Kube.Patch(b.Context(), source, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	populate(b, populated{name: "next", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeCloneSource", source: "os"})
	applied(b, sizeless)
	for _, name := range []string{"next", "sized-root"} {
		b.UntilPopulated(name)
		b.BeginsWith(name, fixture.DiskImage(16))
	}
	if got, want := b.ReadClaim("sized-root").Spec.Resources.Requests.Storage(), b.ReadClaim("golden2").Status.Capacity.Storage(); got.Cmp(*want) != 0 {
		t.Errorf("the machine's claim asks for %s, its source has %s", got, want)
	}
}

// sizeless is a machine that leaves the size of its disk to what it is cloned from.
const sizeless = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: sized
spec:
  runStrategy: Halted
  volumeClaimTemplates:
  - metadata: {name: root}
    spec:
      storageClassName: ` + fixture.ClassImmediate + `
      dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeCloneSource, name: os}
  template:
    spec:
      domain: {devices: {}}
      volumes:
      - name: root
        persistentVolumeClaim: {claimName: root}
`

// TestPopulateSays: what keeps a claim from being filled is said on the claim, and it continues when that is over.
func TestPopulateSays(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	populate(b, populated{name: "disk", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "later"})
	b.ClaimSays("disk", "doesn't exist")
	importSource(b, "later", b.Web.URL+"/missing.img")
	b.ClaimSays("disk", "404")
	b.WaitEvent("disk", time.Minute, func(reason, _ string) bool { return reason == "ImportRetrying" })
	b.Web.Put("/missing.img", fixture.DiskImage(8))
	b.UntilPopulated("disk")
	b.BeginsWith("disk", fixture.DiskImage(8))

	b.Web.Put("/bad.img", []byte("QFI\xfbnot an image"))
	importSource(b, "bad", b.Web.URL+"/bad.img")
	populate(b, populated{name: "bad", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "bad"})
	c := b.UntilClaim("bad", "to be given up", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.import.fatalError"] == "true"
	})
	if c.Status.Phase != corev1.ClaimPending || c.Annotations[fixture.PodPhaseAnnotation] != string(corev1.PodFailed) {
		t.Errorf("a claim that cannot be filled is %s, %v", c.Status.Phase, c.Annotations)
	}
}
