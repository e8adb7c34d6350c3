//go:build apiserver

package apiserver

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/admission"
)

// TestWebhooksDown points the API server to a closed port: changes that must be checked are refused, all others succeed.
func TestWebhooksDown(t *testing.T) {
	point(t, ports[1])
	t.Cleanup(func() { point(t, ports[0]) })
	clone := object(cloneOf(golden, "fedora"))
	eventually(t, "a clone is refused", func() (bool, error) {
		err := admin.Create(t.Context(), clone.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook"), nil
	})
	for name, row := range map[string]struct {
		object  string
		blocked bool
	}{
		"clone at home": {cloneOf(team, "x"), true}, // whether it stays at home is for the webhook to say, of a reference
		"sourceRef":     {dv("sourceRef: {kind: DataSource, name: d}, storage: {}"), true},
		"import":        {dv(fromHTTP + "," + storage), false},
		"upload":        {dv("source: {upload: {}}," + storage), false},
		"cron":          {cron(image, "* * * * *", "m", ""), false},
		"CDI":           {`{kind: CDI, metadata: {name: x}, spec: {}}`, false},
		"machine": {`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: m, namespace: team}, spec: {runStrategy: Halted,
			template: {spec: {domain: {devices: {}}}}}}`, false},
		"machine with a clone": {`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: m, namespace: team}, spec: {
			runStrategy: Halted, template: {spec: {domain: {devices: {}}}}, dataVolumeTemplates: [{metadata: {name: d},
			spec: {source: {pvc: {namespace: golden, name: fedora}}, storage: {}}}]}}`, true},
		"plain claim": {`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: w, namespace: team}, spec: {
			accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, false},
		"labelled claim": {`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: w, namespace: team,
			labels: {cdi.kubevirt.io/applyStorageProfile: "true"}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, true},
		"claim from a source beside it": {claimFrom("cdi.kubevirt.io", "VolumeCloneSource", ""), false},
		"claim from a source elsewhere": {claimFrom("cdi.kubevirt.io", "VolumeCloneSource", golden), true}, // it would be made empty
		"somebody else's source":        {claimFrom("example.com", "Image", golden), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), object(row.object), client.DryRunAll)
			if (err != nil) != row.blocked {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestDownVolumesCanChange: labels, annotations, finalizers and deletion of a clone do not need the webhook.
func TestDownVolumesCanChange(t *testing.T) {
	u := object(cloneOf(golden, "fedora"))
	create(t, users["alice"], u)
	point(t, ports[1])
	t.Cleanup(func() { point(t, ports[0]) })
	eventually(t, "the webhook is down", func() (bool, error) {
		err := admin.Create(t.Context(), object(strings.Replace(cloneOf(golden, "fedora"), "name: v,", "name: w,", 1)), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook"), nil
	})
	if err := admin.Patch(t.Context(), u, client.RawPatch(types.MergePatchType,
		toJSON(t, `{metadata: {labels: {a: b}, annotations: {c: d}, finalizers: [example.com/hold]}}`))); err != nil {
		t.Error(err)
	}
	if err := admin.Delete(t.Context(), u); err != nil {
		t.Error(err)
	}
}

// point sends both webhook configurations to a port, and comes back when the API server does so.
func point(t *testing.T, port int) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for kind, name := range map[string]string{
		"ValidatingWebhookConfiguration": admission.Validating, "MutatingWebhookConfiguration": admission.Mutating,
	} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // the controllers write it too
			if err := admin.Get(ctx, types.NamespacedName{Name: name}, u); err != nil {
				return err
			}
			setPort(u, port)
			return admin.Update(ctx, u)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if port != ports[0] {
		return
	}
	never := make(chan error)
	if err := waitForWebhooks(ctx, never); err != nil {
		t.Fatal(err)
	}
}

// TestDownSourcesDoNotChange: the source of a volume is immutable although the webhook is down; other updates still succeed.
func TestDownSourcesDoNotChange(t *testing.T) {
	point(t, ports[1])
	t.Cleanup(func() { point(t, ports[0]) })
	made := object(dv(fromHTTP + "," + storage))
	eventually(t, "a volume is made without the webhook", func() (bool, error) {
		err := admin.Create(t.Context(), made)
		return err == nil, err
	})
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), made) })
	for name, row := range map[string]struct {
		patch   string
		refused bool
	}{
		"another URL":     {`{spec: {source: {http: {url: "http://elsewhere/disk"}}}}`, true},
		"another kind":    {`{spec: {source: {http: null, blank: {}}}}`, true},
		"a clone":         {`{spec: {source: {http: null, pvc: {namespace: golden, name: fedora}}}}`, true},
		"no source":       {`{spec: {source: null}}`, true},
		"a sourceRef":     {`{spec: {source: null, sourceRef: {kind: DataSource, name: d}}}`, true},
		"a sourceRef too": {`{spec: {sourceRef: {kind: DataSource, name: d}}}`, true},
		"a header":        {`{spec: {source: {http: {extraHeaders: ["a: b"]}}}}`, true},
		"a label":         {`{metadata: {labels: {a: b}}}`, false},
		"the same":        {`{spec: {source: {http: {url: "https://example.com/disk.qcow2"}}}}`, false},
		"a checkpoint":    {`{spec: {checkpoints: [{current: a, previous: ""}]}}`, false},
		"a finalizer":     {`{metadata: {finalizers: [example.com/hold]}}`, false},
		"no finalizer":    {`{metadata: {finalizers: null}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Patch(t.Context(), made.DeepCopy(), client.RawPatch(types.MergePatchType, toJSON(t, row.patch)), client.DryRunAll)
			if (err != nil) != row.refused || err != nil && !strings.Contains(err.Error(), "Cannot update DataVolume Spec") {
				t.Errorf("got %v", err)
			}
		})
	}
}
