package reference

import (
	"bufio"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	instancetype "kubevirt.io/api/instancetype/v1beta1"
	snapshot "kubevirt.io/api/snapshot/v1beta1"
)

// TestMachinesPage holds machines.md to kubevirt.io's types.
func TestMachinesPage(t *testing.T) {
	f, err := os.Open("machines.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := regexp.MustCompile("^\\| `(.*)` \\| (works|refused|no effect) \\|")
	page := map[string][]string{}
	section := ""
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, ok := strings.CutPrefix(s.Text(), "## "); ok {
			section = name
		}
		if m := line.FindStringSubmatch(s.Text()); m != nil {
			page[section] = append(page[section], m[1])
		} else if strings.HasPrefix(s.Text(), "| `") {
			t.Errorf("not a row: %s", s.Text())
		}
	}
	for kind, spec := range map[string]reflect.Type{
		"Instancetype": reflect.TypeFor[instancetype.VirtualMachineInstancetypeSpec](), "Preference": reflect.TypeFor[instancetype.VirtualMachinePreferenceSpec](),
		"VirtualMachineSnapshot": reflect.TypeFor[snapshot.VirtualMachineSnapshotSpec](), "VirtualMachineRestore": reflect.TypeFor[snapshot.VirtualMachineRestoreSpec](),
	} {
		fields := leaves("", spec, 2)
		for _, field := range fields {
			if !slices.ContainsFunc(page[kind], func(row string) bool { return below(field, row) }) {
				t.Errorf("%s: field %s has no row", kind, field)
			}
		}
		for _, row := range page[kind] {
			if !slices.ContainsFunc(fields, func(field string) bool { return below(field, row) || below(row, field) }) {
				t.Errorf("%s has no field %s", kind, row)
			}
		}
	}
}

// leaves are the JSON names of a type's fields, down to a depth.
func leaves(prefix string, t reflect.Type, depth int) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || depth == 0 || !strings.Contains(t.PkgPath(), "kubevirt.io/api/instancetype") && prefix != "" {
		return []string{strings.TrimPrefix(prefix, ".")}
	}
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, leaves(prefix+"."+name, t.Field(i).Type, depth-1)...)
	}
	return out
}
