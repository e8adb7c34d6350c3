package importsource_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/task"
)

// others are the sources that are no server: what is local, and what is refused.
var others = []string{"pvc", "upload", "blank", "imageio", "vddk", "snapshot"}

// TestEveryKindIsInTheTable: each source of the API module is in the table, or among those that are not a server's.
func TestEveryKindIsInTheTable(t *testing.T) {
	for _, kind := range []reflect.Type{reflect.TypeFor[cdiv1.DataVolumeSource](), reflect.TypeFor[cdiv1.ImportSourceType]()} {
		for i := range kind.NumField() {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			if (importsource.Named(name) != nil) == slices.Contains(others, name) {
				t.Errorf("%s has a source %s: add it to Kinds, or say that it is no server", kind.Name(), name)
			}
		}
	}
}

// everything has a value in every field.
var everything = importsource.Source{
	URL: "docker://server/disk", Secret: "login", Certificates: "ca", Checksum: "md5:0", Headers: []string{"A: b"}, SecretHeaders: []string{"more"},
	Insecure: ptr.To(true), Architecture: "arm64", PullMethod: cdiv1.RegistryPullNode, ImageStream: "stream",
}

// TestSpelling: what a kind keeps of a source comes back as it was, under its own name, also by way of a VolumeImportSource; and
// the worker is told of exactly one source, with its address.
func TestSpelling(t *testing.T) {
	for _, k := range importsource.Kinds {
		s := importsource.FromImport(importsource.ToImport(k.Source(everything)))
		found, kept := importsource.Of(s)
		if found == nil || found.Name != k.Name {
			t.Fatalf("%s comes back as %v", k.Name, found)
		}
		if kept.URL != everything.URL || kept.Secret != everything.Secret || !kept.NeedsSecrets() {
			t.Errorf("%s keeps %+v", k.Name, kept)
		}
		if again := found.Source(kept); !reflect.DeepEqual(again, s) {
			t.Errorf("%s: %+v became %+v", k.Name, s, again)
		}
		told := reflect.ValueOf(k.Task(kept, task.Access{CADir: "/ca"}))
		var set []string
		for i := range told.NumField() {
			if f := told.Field(i); !f.IsNil() {
				set = append(set, told.Type().Field(i).Name)
				if f.Elem().FieldByName("URL").String() != everything.URL || f.Elem().FieldByName("CADir").String() != "/ca" {
					t.Errorf("%s tells the worker %+v", k.Name, f.Elem())
				}
			}
		}
		if len(set) != 1 {
			t.Errorf("%s tells the worker of %q", k.Name, set)
		}
	}
}

// TestNothing: no server is named.
func TestNothing(t *testing.T) {
	for _, s := range []*cdiv1.DataVolumeSource{importsource.FromImport(nil), {Blank: &cdiv1.DataVolumeBlankImage{}}, {Upload: &cdiv1.DataVolumeSourceUpload{}}} {
		if k, got := importsource.Of(s); k != nil || got.NeedsSecrets() {
			t.Errorf("%+v is %s %+v", s, k.Name, got)
		}
	}
	if importsource.Named("ftp") != nil || len(importsource.Names()) != len(importsource.Kinds) {
		t.Error("names")
	}
}
