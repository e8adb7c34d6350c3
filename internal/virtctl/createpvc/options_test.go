package createpvc

import (
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// TestNeedsDataSide is the seed's rule: all fields and no source of the data side's need nothing but Kubernetes.
func TestNeedsDataSide(t *testing.T) {
	full := Options{Name: "a", Size: "1Gi", AccessModes: []string{"ReadWriteOnce"}, VolumeMode: "Block"}
	for name, c := range map[string]struct {
		change func(*Options)
		want   bool
	}{
		"everything":         {func(*Options) {}, false},
		"another populator":  {func(o *Options) { o.Source = Source{Kind: "Tape", Group: "example.org", Name: "b"} }, false},
		"a snapshot":         {func(o *Options) { o.Source = Source{Kind: "VolumeSnapshot", Name: "b"} }, false},
		"no access mode":     {func(o *Options) { o.AccessModes = nil }, true},
		"no volume mode":     {func(o *Options) { o.VolumeMode = "" }, true},
		"no size":            {func(o *Options) { o.Size = "" }, true},
		"an import source":   {func(o *Options) { o.Source = Source{Kind: cdiv1.VolumeImportSourceRef, Name: "b"} }, true},
		"ours in its group":  {func(o *Options) { o.Source = Source{Kind: "VolumeCloneSource", Group: "cdi.kubevirt.io", Name: "b"} }, true},
		"a namesake of ours": {func(o *Options) { o.Source = Source{Kind: "VolumeCloneSource", Group: "example.org", Name: "b"} }, false},
	} {
		o := full
		c.change(&o)
		if got := !o.complete(); got != c.want {
			t.Errorf("%s: needs the data side: %t", name, got)
		}
	}
}

func TestPartial(t *testing.T) {
	o := Options{Name: "my-pvc-", Namespace: "team", Size: "1Gi", Source: Source{Kind: "PersistentVolumeClaim", Name: "b", Namespace: "team"}}
	pvc, err := o.partial()
	if err != nil {
		t.Fatal(err)
	}
	if pvc.Name != "my-pvc" {
		t.Errorf("called %q", pvc.Name)
	}
	if ref := pvc.Spec.DataSourceRef; ref.APIGroup != nil || ref.Namespace != nil {
		t.Errorf("a claim of the same namespace is named with %v", ref)
	}
}
