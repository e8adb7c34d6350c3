package reference

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/config/crd"
)

// TestNamesAndColumns: what people type after kubectl get, and what they see then, is as in CDI.
func TestNamesAndColumns(t *testing.T) {
	type look struct {
		Short   string
		Scope   apiextensionsv1.ResourceScope
		All     bool // kubectl get all shows it
		Columns string
	}
	want := map[string]look{
		"DataVolume":     {"dv,dvs", apiextensionsv1.NamespaceScoped, true, "Phase,Progress,Restarts,Age"},
		"DataSource":     {"das", apiextensionsv1.NamespaceScoped, true, ""},
		"DataImportCron": {"dic,dics", apiextensionsv1.NamespaceScoped, true, "Format"},
		"CDI":            {"cdi,cdis", apiextensionsv1.ClusterScoped, false, "Age,Phase"},
	}
	got := map[string]look{}
	err := fs.WalkDir(crd.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := crd.Files.ReadFile(path)
		if err != nil {
			return err
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &d); err != nil {
			return err
		}
		if _, ok := want[d.Spec.Names.Kind]; !ok || d.Spec.Group != "cdi.kubevirt.io" {
			return nil
		}
		var columns []string
		for _, c := range d.Spec.Versions[0].AdditionalPrinterColumns {
			columns = append(columns, c.Name)
		}
		got[d.Spec.Names.Kind] = look{
			Short: strings.Join(d.Spec.Names.ShortNames, ","), Scope: d.Spec.Scope,
			All: slices.Contains(d.Spec.Names.Categories, "all"), Columns: strings.Join(columns, ","),
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
