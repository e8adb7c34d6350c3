//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claimFrom returns a claim with a source.
func claimFrom(group, kind, namespace string) string {
	if namespace != "" {
		namespace = ", namespace: " + namespace
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: abroad, namespace: team}, spec: {
		accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}},
		dataSourceRef: {apiGroup: %s, kind: %s, name: fedora%s}}}`, group, kind, namespace)
}

// TestSourceNamespace: the API server, which has every gate as it is by default, drops a dataSourceRef that names a namespace. It keeps those
// that a claim is filled by us from, because admission has moved the namespace to an annotation by then.
func TestSourceNamespace(t *testing.T) {
	for name, row := range map[string]struct {
		claim  string
		kept   bool
		source string // namespace in the annotation
	}{
		"beside the claim":                   {claim: claimFrom("cdi.kubevirt.io", "VolumeImportSource", ""), kept: true},
		"in the claim's own namespace":       {claim: claimFrom("cdi.kubevirt.io", "VolumeImportSource", team), kept: true},
		"an import in another namespace":     {claim: claimFrom("cdi.kubevirt.io", "VolumeImportSource", golden), kept: true, source: golden},
		"an upload in another namespace":     {claim: claimFrom("cdi.kubevirt.io", "VolumeUploadSource", golden), kept: true, source: golden},
		"a clone from another namespace":     {claim: claimFrom("cdi.kubevirt.io", "VolumeCloneSource", golden), kept: true, source: golden},
		"a DataSource of another namespace":  {claim: claimFrom("cdi.kubevirt.io", "DataSource", golden), kept: true, source: golden},
		"what we do not fill claims from":    {claim: claimFrom("example.com", "Image", golden)}, // that it is dropped is how Kubernetes is
		"a snapshot of another namespace":    {claim: claimFrom("snapshot.storage.k8s.io", "VolumeSnapshot", golden)},
		"what we do not fill from, beside":   {claim: claimFrom("example.com", "Image", ""), kept: true},
		"a kind that no source of ours has":  {claim: claimFrom("cdi.kubevirt.io", "DataVolume", golden)},
		"a kind of nobody, beside the claim": {claim: claimFrom("cdi.kubevirt.io", "DataVolume", ""), kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			u := object(row.claim)
			must(t, users["bob"].Create(t.Context(), u, client.DryRunAll))
			var made corev1.PersistentVolumeClaim
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &made))
			if kept := made.Spec.DataSourceRef != nil; kept != row.kept || made.Annotations["berth.dev/source-namespace"] != row.source {
				t.Errorf("the source is %+v, annotations are %v", made.Spec.DataSourceRef, made.Annotations)
			}
		})
	}
}

// TestSourceNamespaceAppliedAgain: such a claim can be applied as it was written as often as one likes, and nothing of it changes.
func TestSourceNamespaceAppliedAgain(t *testing.T) {
	text := strings.Replace(claimFrom("cdi.kubevirt.io", "VolumeCloneSource", golden), "name: abroad", "name: applied-abroad", 1)
	var applied []any
	for range 2 {
		u := object(text)
		must(t, users["bob"].Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("gitops"), client.ForceOwnership))
		applied = append(applied, u.Object["spec"], u.GetAnnotations())
	}
	if diff := cmp.Diff(applied[:2], applied[2:]); diff != "" {
		t.Errorf("applying it again changed it:\n%s", diff)
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	must(t, users["bob"].Patch(t.Context(), object(text), label))
}
