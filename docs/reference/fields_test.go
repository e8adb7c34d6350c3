package reference

import (
	"reflect"
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// kinds are the kinds of the group, as clients know them.
var kinds = map[string]reflect.Type{
	"DataVolume": reflect.TypeFor[cdiv1.DataVolume](), "StorageProfile": reflect.TypeFor[cdiv1.StorageProfile](),
	"DataSource": reflect.TypeFor[cdiv1.DataSource](), "DataImportCron": reflect.TypeFor[cdiv1.DataImportCron](),
	"VolumeImportSource": reflect.TypeFor[cdiv1.VolumeImportSource](),
	"VolumeUploadSource": reflect.TypeFor[cdiv1.VolumeUploadSource](),
	"VolumeCloneSource":  reflect.TypeFor[cdiv1.VolumeCloneSource](),
	"ObjectTransfer":     reflect.TypeFor[cdiv1.ObjectTransfer](), "CDI": reflect.TypeFor[cdiv1.CDI](),
	"CDIConfig": reflect.TypeFor[cdiv1.CDIConfig](),
}

// described are types the page describes once: where they come up again, one row stands for them.
var described = map[reflect.Type]string{
	reflect.TypeFor[cdiv1.DataVolume]():               "DataVolume",
	reflect.TypeFor[cdiv1.CDIConfigSpec]():            "CDI",
	reflect.TypeFor[cdiv1.DataVolumeSourceHTTP]():     "DataVolume",
	reflect.TypeFor[cdiv1.DataVolumeSourceS3]():       "DataVolume",
	reflect.TypeFor[cdiv1.DataVolumeSourceGCS]():      "DataVolume",
	reflect.TypeFor[cdiv1.DataVolumeSourceRegistry](): "DataVolume",
	reflect.TypeFor[cdiv1.DataVolumeSourcePVC]():      "DataVolume",
	reflect.TypeFor[cdiv1.DataVolumeSourceSnapshot](): "DataVolume",
	reflect.TypeFor[cdiv1.DataVolumeCheckpoint]():     "DataVolume",
	reflect.TypeFor[cdiv1.StorageProfileSpec]():       "StorageProfile",
	reflect.TypeFor[cdiv1.ClaimPropertySet]():         "StorageProfile",
	reflect.TypeFor[cdiv1.ImportProxy]():              "CDI",
	reflect.TypeFor[cdiv1.FilesystemOverhead]():       "CDI",
}

// refused are types no field of which means anything here.
var refused = map[reflect.Type]bool{
	reflect.TypeFor[cdiv1.DataVolumeSourceVDDK]():    true,
	reflect.TypeFor[cdiv1.DataVolumeSourceImageIO](): true,
	reflect.TypeFor[cdiv1.TLSSecurityProfile]():      true,
}

// fieldsOf lists the fields of a kind by their JSON path. Types of Kubernetes itself are one field each.
func fieldsOf(kind string) []string {
	var out []string
	t := kinds[kind]
	for _, part := range []string{"Spec", "Status"} {
		if f, ok := t.FieldByName(part); ok {
			walk(kind, strings.ToLower(part), f.Type, &out)
		}
	}
	return out
}

func walk(kind, path string, t reflect.Type, out *[]string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	ours := strings.Contains(t.PkgPath(), "containerized-data-importer-api") || strings.Contains(t.PkgPath(), "operator-sdk")
	home, elsewhere := described[t]
	if t.Kind() != reflect.Struct || !ours || t.NumField() == 0 || refused[t] || elsewhere && home != kind {
		*out = append(*out, path)
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" { // inlined
			walkInline(kind, path, f.Type, out)
			continue
		}
		walk(kind, path+"."+name, f.Type, out)
	}
}

func walkInline(kind, path string, t reflect.Type, out *[]string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		walk(kind, path+"."+name, t.Field(i).Type, out)
	}
}
