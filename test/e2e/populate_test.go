//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/framework"
)

const (
	podPhase     = "cdi.kubevirt.io/storage.pod.phase"
	populatedFor = "cdi.kubevirt.io/storage.populatedFor"
	progress     = "cdi.kubevirt.io/storage.populator.progress"
	running      = "cdi.kubevirt.io/storage.condition.running.message"
	selectedNode = "volume.kubernetes.io/selected-node"
)

// populated is a claim that names one of our sources.
type populated struct {
	name, class, size string
	kind, source      string
	from              string // the source's namespace, if it is another
	block             bool
	change            func(*corev1.PersistentVolumeClaim)
}

func (b *bed) populate(p populated) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	mode, group := corev1.PersistentVolumeFilesystem, cdiv1.SchemeGroupVersion.Group
	if p.block {
		mode = corev1.PersistentVolumeBlock
	}
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: p.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &p.class, VolumeMode: &mode, Resources: request(p.size),
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
	b.create(c)
	return c
}

func (b *bed) create(obj client.Object) {
	b.T.Helper()
	if err := b.kube.Create(b.Context(), obj); err != nil {
		b.T.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
}

func (b *bed) importSource(name, url string) {
	b.T.Helper()
	b.create(&cdiv1.VolumeImportSource{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name}, Spec: cdiv1.VolumeImportSourceSpec{
		Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}},
	}})
}

func (b *bed) cloneSource(name, claim string) *cdiv1.VolumeCloneSource {
	b.T.Helper()
	s := &cdiv1.VolumeCloneSource{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name}, Spec: cdiv1.VolumeCloneSourceSpec{
		Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: claim},
	}}
	b.create(s)
	return s
}

// untilClaim waits for a claim to be as wanted and returns it.
func (b *bed) untilClaim(name, what string, wanted func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	var c corev1.PersistentVolumeClaim
	b.Wait("claim "+name+" "+what, patience, func(ctx context.Context) (bool, string) {
		if err := b.kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: name}, &c); err != nil {
			return false, err.Error()
		}
		return wanted(&c), fmt.Sprintf("%s: %s", c.Status.Phase, c.Annotations[running])
	})
	return &c
}

// untilPopulated waits until a claim is bound and says that its data is complete, and until its prime is gone.
func (b *bed) untilPopulated(name string) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	c := b.untilClaim(name, "to be populated", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Phase == corev1.ClaimBound && c.Annotations[podPhase] == string(corev1.PodSucceeded)
	})
	if c.Annotations[populatedFor] != name || c.Annotations[progress] != "100.0%" {
		b.T.Errorf("the claim's annotations are %v", c.Annotations)
	}
	b.Wait("the prime of "+name+" to be gone", patience, func(ctx context.Context) (bool, string) {
		var prime corev1.PersistentVolumeClaim
		err := b.kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: "prime-" + string(c.UID)}, &prime)
		return apierrors.IsNotFound(err), string(prime.Status.Phase)
	})
	return c
}

// says waits for what the claim says about its population.
func (b *bed) says(name, text string) {
	b.T.Helper()
	b.untilClaim(name, "to say "+text, func(c *corev1.PersistentVolumeClaim) bool { return strings.Contains(c.Annotations[running], text) })
}

// TestPopulateImport: a claim is filled on the node that the scheduler chose for the pod that uses it, without any other
// consumer; one whose class binds at once is filled at once. Two claims of one pod are filled on one node.
func TestPopulateImport(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.importSource("image", b.web.url+"/disk.img")
	b.populate(populated{name: "first", class: classWaits, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	b.populate(populated{name: "second", class: classWaits, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	b.populate(populated{name: "atonce", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	b.untilPopulated("atonce")
	b.says("first", "on the node of the first pod that uses it")
	if got := b.workers(b.Context()); len(got) != 0 {
		t.Errorf("workers %v although no pod needs the claims", got)
	}
	node := b.ReadyNodes()[1]
	b.Start(framework.Pod{Name: "user", Script: "true", Claims: []string{"first", "second"}, Node: node, User: guest})
	b.WaitPhase("user", corev1.PodSucceeded)
	for _, name := range []string{"first", "second"} {
		c := b.untilPopulated(name)
		if at := framework.VolumeNode(b.WaitBound(name)); at != node || c.Annotations[selectedNode] != node {
			t.Errorf("claim %s is on %s (selected %s), its pod on %s", name, at, c.Annotations[selectedNode], node)
		}
	}
	b.Delete("user")
	for _, name := range []string{"first", "second", "atonce"} {
		b.begins(name, image(24))
	}
	b.WaitEvent("first", time.Minute, func(reason, _ string) bool { return reason == "PopulationSucceeded" })
	b.reapplied("atonce")
}

// reapplied: applying a claim again as it was written changes nothing and conflicts with nobody.
func (b *bed) reapplied(name string) {
	b.T.Helper()
	before := b.claim(name)
	again := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"storageClassName": *before.Spec.StorageClassName, "accessModes": []any{"ReadWriteOnce"},
		"resources":     map[string]any{"requests": map[string]any{"storage": before.Spec.Resources.Requests.Storage().String()}},
		"dataSourceRef": map[string]any{"apiGroup": "cdi.kubevirt.io", "kind": before.Spec.DataSourceRef.Kind, "name": before.Spec.DataSourceRef.Name},
	}}}
	again.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	again.SetNamespace(b.Namespace)
	again.SetName(name)
	if err := b.kube.Apply(b.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner("gitops")); err != nil {
		b.T.Errorf("apply claim %s again: %v", name, err)
	}
	if after := b.claim(name); after.UID != before.UID || after.Annotations[populatedFor] == "" || after.Spec.VolumeName != before.Spec.VolumeName {
		b.T.Errorf("claim %s is another after it was applied again", name)
	}
}

// TestPopulateClone: a claim is cloned from what its source names at that moment, on one node and between two; the source
// is changed and the next claim follows, also a machine's, whose size is that of its source.
func TestPopulateClone(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	nodes := b.ReadyNodes()
	b.golden(classWaits, nodes[0])
	source := b.cloneSource("os", "golden")
	b.populate(populated{name: "near", class: classWaits, size: "64Mi", kind: "VolumeCloneSource", source: "os"})
	b.populate(populated{name: "far", class: classWaits, size: "64Mi", kind: "VolumeCloneSource", source: "os"})
	// A pod that cannot start before the clone is there does not keep the clone waiting for its source.
	b.Start(framework.Pod{Name: "user-near", Script: "true", Claims: []string{"near", "golden"}, Node: nodes[0], User: guest})
	b.Start(framework.Pod{Name: "user-far", Script: "true", Claims: []string{"far"}, Node: nodes[1], User: guest})
	for _, name := range []string{"near", "far"} {
		b.WaitPhase("user-"+name, corev1.PodSucceeded)
		b.untilPopulated(name)
		b.Delete("user-" + name)
		b.begins(name, image(24))
	}

	b.web.put("/newer.img", image(16))
	b.importSource("newer", b.web.url+"/newer.img")
	b.populate(populated{name: "golden2", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "newer"})
	b.untilPopulated("golden2")
	before := source.DeepCopy()
	source.Spec.Source.Name = "golden2"
	if err := b.kube.Patch(b.Context(), source, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	b.populate(populated{name: "next", class: classImmediate, size: "64Mi", kind: "VolumeCloneSource", source: "os"})
	b.applied(sizeless)
	for _, name := range []string{"next", "sized-root"} {
		b.untilPopulated(name)
		b.begins(name, image(16))
	}
	if got, want := b.claim("sized-root").Spec.Resources.Requests.Storage(), b.claim("golden2").Status.Capacity.Storage(); got.Cmp(*want) != 0 {
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
      storageClassName: ` + classImmediate + `
      dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeCloneSource, name: os}
  template:
    spec:
      domain: {devices: {}}
      volumes:
      - name: root
        persistentVolumeClaim: {claimName: root}
`

// TestPopulateSays: what keeps a claim from being filled is said on the claim, and it goes on when that is over.
func TestPopulateSays(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.populate(populated{name: "disk", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "later"})
	b.says("disk", "doesn't exist")
	b.importSource("later", b.web.url+"/missing.img")
	b.says("disk", "404")
	b.WaitEvent("disk", time.Minute, func(reason, _ string) bool { return reason == "ImportRetrying" })
	b.web.put("/missing.img", image(8))
	b.untilPopulated("disk")
	b.begins("disk", image(8))

	b.web.put("/bad.img", []byte("QFI\xfbnot an image"))
	b.importSource("bad", b.web.url+"/bad.img")
	b.populate(populated{name: "bad", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "bad"})
	c := b.untilClaim("bad", "to be given up", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.import.fatalError"] == "true"
	})
	if c.Status.Phase != corev1.ClaimPending || c.Annotations[podPhase] != string(corev1.PodFailed) {
		t.Errorf("a claim that cannot be filled is %s, %v", c.Status.Phase, c.Annotations)
	}
}
