//go:build apiserver

package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/config/library"
)

// TestLibraryObjects: the API server and admission take every object of the library as it is written, without a field that they do not know.
func TestLibraryObjects(t *testing.T) {
	root, err := moduleRoot()
	must(t, err)
	strict := client.WithFieldValidation(admin, metav1.FieldValidationStrict)
	n := 0
	for _, name := range []string{"view.yaml", "images.yaml", "instancetypes.yaml", "preferences.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "config", "library", name))
		must(t, err)
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			if !strings.Contains(doc, "kind:") {
				continue
			}
			o := object(doc)
			if err := strict.Create(t.Context(), o, client.DryRunAll); err != nil && !apierrors.IsAlreadyExists(err) { // installRights may have made its roles
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
			n++
		}
	}
	if want := 2 + len(library.Images) + len(library.Instancetypes()) + len(library.Preferences); n != want {
		t.Errorf("%d objects, not %d", n, want)
	}
}
