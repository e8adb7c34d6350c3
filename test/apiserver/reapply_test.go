//go:build apiserver

package apiserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestClaimAppliedAgain: a claim that leaves its mode to the profile can be applied again as it was written, and nothing of it
// changes; other updates of it are none of the webhook's business.
func TestClaimAppliedAgain(t *testing.T) {
	const text = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: again, namespace: team,
		labels: {cdi.kubevirt.io/applyStorageProfile: "true"}}, spec: {storageClassName: w-again, volumeMode: FromStorageProfile,
		resources: {requests: {storage: 1Gi}}}}`
	create(t, admin, class("w-again", "rbd.csi.ceph.com"))
	profileOf(t, "w-again", "[ReadWriteMany] Block; [ReadWriteOnce] Block; [ReadWriteOnce] Filesystem; clone csi-clone; "+
		"Recognized True RecognizedProvisioner")
	first := object(text)
	eventually(t, "the webhook knows the class", func() (bool, error) {
		first = object(text)
		err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(first), client.FieldOwner("gitops"))
		return err == nil, err
	})
	second := object(text)
	must(t, admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(second), client.FieldOwner("gitops")))
	if diff := cmp.Diff(first.Object["spec"], second.Object["spec"]); diff != "" {
		t.Errorf("applying it again changed it:\n%s", diff)
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	must(t, admin.Patch(t.Context(), second, label))
}
