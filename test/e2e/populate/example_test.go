//go:build e2e

package populate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// applied are the objects of an example after it was applied twice: the second time must change nothing that was written.
func applied(b *fixture.Volumes, text string) []*unstructured.Unstructured {
	b.T.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var want unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &want.Object); err != nil {
			b.T.Fatal(err)
		}
		want.SetNamespace(b.Namespace)
		var made [2]*unstructured.Unstructured
		for i := range made {
			made[i] = want.DeepCopy()
			err := b.Kube.Apply(b.Context(), client.ApplyConfigurationFromUnstructured(made[i]), client.FieldOwner("gitops"))
			if err != nil {
				b.T.Fatalf("apply %s %s: %v", want.GetKind(), want.GetName(), err)
			}
		}
		if diff := cmp.Diff(made[0].Object["spec"], made[1].Object["spec"]); diff != "" {
			b.T.Errorf("%s %s is another after it was applied again:\n%s", want.GetKind(), want.GetName(), diff)
		}
		out = append(out, made[1])
	}
	return out
}

// TestPopulateExamples applies the examples as they are written but for addresses: a claim that is imported, one that is
// cloned from it, and one that leaves everything open and is cloned from another namespace.
func TestPopulateExamples(t *testing.T) {
	t.Parallel()
	b, team := fixture.NewVolumes(t), fixture.NewVolumes(t, framework.Restricted)
	b.Web.Put("/cirros-0.6.3-x86_64-disk.img", fixture.DiskImage(8))
	here := []string{"https://download.cirros-cloud.net/0.6.3", b.Web.URL, "storage: 1Gi", "storage: 64Mi", "namespace: golden-images",
		"namespace: " + b.Namespace, "namespace: default", "namespace: " + team.Namespace, "name: os\n", "name: debian-13\n", "name: os}", "name: debian-13}"}
	for _, file := range []string{"claim-import.yaml", "claim-clone.yaml", "golden-images/grant.yaml"} {
		applied(b, fixture.Example(t, file, here...))
	}
	for _, name := range []string{"cirros", "disk"} { // one after the other: what a pod writes to is not cloned
		b.Run(framework.Pod{Name: "user", Script: "true", Claims: []string{name}})
		b.UntilPopulated(name)
	}
	b.BeginsWith("disk", fixture.DiskImage(8))

	c := applied(team, fixture.Example(t, "claim-completed.yaml", here...))[0]
	if spec := c.Object["spec"].(map[string]any); spec["accessModes"] == nil || spec["volumeMode"] == "FromStorageProfile" {
		t.Errorf("the claim was completed to %v", spec)
	}
	team.Run(framework.Pod{Name: "user", Script: "true", Claims: []string{"debian"}, User: fixture.GuestUser})
	team.UntilPopulated("debian")
	team.BeginsWith("debian", fixture.DiskImage(8))
	for _, file := range []string{"debian", "ubuntu", "fedora", "centos-stream"} {
		applied(b, fixture.Example(t, "golden-images/"+file+".yaml"))
	}
}

// TestPopulateCloneByDriver: where the storage clones by itself, the prime is the clone and no byte is moved.
func TestPopulateCloneByDriver(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.CreateFilledClaim(true)
	b.CreateCloneSource("os", "golden")
	populate(b, populated{name: "waits", class: fixture.ClassDisk, size: "64Mi", kind: "VolumeCloneSource", source: "os", block: true})
	populate(b, populated{name: "atonce", class: fixture.ClassDiskImmediate, size: "64Mi", kind: "VolumeCloneSource", source: "os", block: true})
	b.Start(framework.Pod{Name: "user", Script: "true", Claims: []string{"waits"}, User: fixture.GuestUser, Node: framework.VolumeNode(b.WaitBound("golden"))})
	b.WaitPhase("user", corev1.PodSucceeded)
	b.Delete("user")
	for _, name := range []string{"waits", "atonce"} {
		b.UntilPopulated(name)
		b.BeginsWith(name, fixture.DiskImage(24))
		if by := b.ReadClaim(name).Annotations["cdi.kubevirt.io/cloneType"]; by != "snapshot" && by != "csi-clone" {
			t.Errorf("claim %s was cloned by %q", name, by)
		}
	}
}
