//go:build apiserver

package apiserver

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/admission"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/token"
)

func authority(t *testing.T) string {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"})
	if err := admin.Get(t.Context(), types.NamespacedName{Name: admission.Mutating}, u); err != nil {
		t.Fatal(err)
	}
	hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	bundle, _, _ := unstructured.NestedString(hooks[0].(map[string]any), "clientConfig", "caBundle")
	return bundle
}

// TestCertificateIsReplaced empties the Secret: a new authority and certificate are made, trusted and served, and the
// webhooks that fail closed answer again, without a restart.
func TestCertificateIsReplaced(t *testing.T) {
	before := authority(t)
	secret := &corev1.Secret{}
	if err := admin.Get(t.Context(), types.NamespacedName{Namespace: home, Name: installkeys.ServingSecret}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data = nil
	if err := admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another authority is trusted", func() (bool, error) {
		now := authority(t)
		return now != "" && now != before, nil
	})
	never := make(chan error)
	if err := waitForWebhooks(context.WithoutCancel(t.Context()), never); err != nil {
		t.Fatal(err)
	}
	if err := users["alice"].Create(t.Context(), object(cloneOf(golden, "fedora")), client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// TestCloneKeyIsReplaced deletes the key: a new one is made, and what was proved with the old one is not proved any more.
func TestCloneKeyIsReplaced(t *testing.T) {
	old, err := clones.Sign(t.Context(), pvcGrant("fedora", "v"))
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = home, installkeys.CloneSecret
	if err := admin.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	fresh, err := clones.Sign(t.Context(), pvcGrant("fedora", "v"))
	if err != nil {
		t.Fatal(err)
	}
	if err := clones.Verify(t.Context(), fresh, pvcGrant("fedora", "v")); err != nil {
		t.Error(err)
	}
	if err := clones.Verify(t.Context(), old, pvcGrant("fedora", "v")); !errors.Is(err, token.ErrForged) {
		t.Errorf("the old proof: got %v, want %v", err, token.ErrForged)
	}
}
