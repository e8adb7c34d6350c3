package crd_test

import (
	"io/fs"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/config/crd"
)

// most is how large a definition may be. etcd takes 1.5 MiB, and who applied which field is stored with it.
const most = 1 << 20

// TestEveryFieldIsDescribed: `kubectl explain` has words for every field of every kind.
func TestEveryFieldIsDescribed(t *testing.T) {
	err := fs.WalkDir(crd.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := crd.Files.ReadFile(name)
		if err != nil {
			return err
		}
		if len(text) > most {
			t.Errorf("%s has %d bytes; %d are the most", name, len(text), most)
		}
		var d apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &d); err != nil {
			return err
		}
		for _, v := range d.Spec.Versions {
			if v.Schema.OpenAPIV3Schema.Description == "" {
				t.Errorf("%s %s has no description", d.Spec.Names.Kind, v.Name)
			}
			described(t, d.Spec.Names.Kind, *v.Schema.OpenAPIV3Schema)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func described(t *testing.T, path string, schema apiextensions.JSONSchemaProps) {
	t.Helper()
	for name, field := range schema.Properties {
		where := path + "." + name
		if field.Description == "" && (name != "metadata" || strings.Contains(path, ".")) {
			t.Errorf("%s has no description", where)
		}
		described(t, where, field)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		described(t, path+"[]", *schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		described(t, path+"{}", *schema.AdditionalProperties.Schema)
	}
}
