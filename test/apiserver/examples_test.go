//go:build apiserver

package apiserver

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestExamples: every object of every file below examples is taken by the API server and by admission, with strict validation. Those that name a namespace of
// their own, which is not here, are made in another one.
func TestExamples(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	must(t, err)
	seen := 0
	must(t, fs.WalkDir(os.DirFS(root), "examples", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || d.Name() == "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			// A kind of the Gateway API, which this server has not, and a claim that is completed from a golden image: TestPopulateExamples applies both.
			if o.GetKind() == "ReferenceGrant" || d.Name() == "claim-completed.yaml" {
				continue
			}
			tryExample(t, path, o)
			seen++
		}
		return nil
	}))
	if seen < 40 {
		t.Errorf("only %d objects were found", seen)
	}
}

// tryExample asks the API server whether it would create an object.
func tryExample(t *testing.T, path string, o *unstructured.Unstructured) {
	t.Helper()
	namespaced, err := admin.IsObjectNamespaced(o)
	if err != nil {
		t.Errorf("%s: %s %s: %v", path, o.GetKind(), o.GetName(), err)
		return
	}
	if namespaced {
		err := admin.Get(t.Context(), types.NamespacedName{Name: o.GetNamespace()}, &corev1.Namespace{})
		if o.GetNamespace() == "" || apierrors.IsNotFound(err) {
			o.SetNamespace(team)
		}
	}
	as := admin
	if o.GetKind() == "VirtualMachine" { // a container needs a user who may run pods
		as = users["gina"]
	}
	if err := as.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Errorf("%s: %s %s: %v", path, o.GetKind(), o.GetName(), err)
	}
}
