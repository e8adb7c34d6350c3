package reference

import (
	"bufio"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	clone "kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	instancetype "kubevirt.io/api/instancetype/v1beta1"
	migrations "kubevirt.io/api/migrations/v1alpha1"
	snapshot "kubevirt.io/api/snapshot/v1beta1"

	ours "github.com/berth-vm/berth/api/kubevirt/v1"
)

// machineRow is a row of machines.md.
type machineRow struct{ field, status string }

// readMachines returns the rows of machines.md by section.
func readMachines(t *testing.T) map[string][]machineRow {
	t.Helper()
	f, err := os.Open("machines.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := regexp.MustCompile("^\\| `(.*)` \\| (works|refused|no effect|not written) \\|")
	page := map[string][]machineRow{}
	section := ""
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, ok := strings.CutPrefix(s.Text(), "## "); ok {
			section = name
		}
		if m := line.FindStringSubmatch(s.Text()); m != nil {
			page[section] = append(page[section], machineRow{m[1], m[2]})
		} else if strings.HasPrefix(s.Text(), "| `") {
			t.Errorf("not a row: %s", s.Text())
		}
	}
	return page
}

// TestMachinesPage holds machines.md to kubevirt.io's types.
func TestMachinesPage(t *testing.T) {
	page := map[string][]string{}
	for section, rows := range readMachines(t) {
		for _, r := range rows {
			page[section] = append(page[section], r.field)
		}
	}
	for kind, fields := range map[string][]string{
		"VirtualMachine":         everyField("", reflect.TypeFor[kubevirt.VirtualMachineSpec]()),
		"VirtualMachineInstance": everyField("", reflect.TypeFor[kubevirt.VirtualMachineInstanceSpec]()),
	} {
		compare(t, kind, fields, page[kind])
	}
	for kind, spec := range map[string]reflect.Type{
		"Instancetype": reflect.TypeFor[instancetype.VirtualMachineInstancetypeSpec](), "Preference": reflect.TypeFor[instancetype.VirtualMachinePreferenceSpec](),
		"VirtualMachineSnapshot": reflect.TypeFor[snapshot.VirtualMachineSnapshotSpec](), "VirtualMachineRestore": reflect.TypeFor[snapshot.VirtualMachineRestoreSpec](),
		"VirtualMachineClone": reflect.TypeFor[clone.VirtualMachineCloneSpec](), "MigrationPolicy": reflect.TypeFor[migrations.MigrationPolicySpec](),
	} {
		compare(t, kind, leaves("", spec, 2), page[kind])
	}
}

// TestStatusRows: each field of upstream's statuses has a row, and those that work are the ones that our types have.
func TestStatusRows(t *testing.T) {
	page := readMachines(t)
	for kind, types := range map[string][2]reflect.Type{
		"Status of a VirtualMachine":         {reflect.TypeFor[kubevirt.VirtualMachineStatus](), reflect.TypeFor[ours.VirtualMachineStatus]()},
		"Status of a VirtualMachineInstance": {reflect.TypeFor[kubevirt.VirtualMachineInstanceStatus](), reflect.TypeFor[ours.VirtualMachineInstanceStatus]()},
	} {
		theirs, have := everyField("", types[0]), everyField("", types[1])
		var rows []string
		for _, r := range page[kind] {
			rows = append(rows, r.field)
		}
		compare(t, kind, theirs, rows)
		for _, field := range theirs {
			nearest := machineRow{}
			for _, r := range page[kind] {
				if below(field, r.field) && len(r.field) > len(nearest.field) {
					nearest = r
				}
			}
			written := slices.ContainsFunc(have, func(f string) bool { return below(f, field) || below(field, f) })
			if written != (nearest.status == "works") {
				t.Errorf("%s: %s is %q, and our type has it: %t", kind, field, nearest.status, written)
			}
		}
	}
}

// compare fails if a field of a kind has no row, or a row no field.
func compare(t *testing.T, kind string, fields, rows []string) {
	t.Helper()
	for _, field := range fields {
		if !slices.ContainsFunc(rows, func(row string) bool { return below(field, row) }) {
			t.Errorf("%s: field %s has no row", kind, field)
		}
	}
	for _, row := range rows {
		if !slices.ContainsFunc(fields, func(field string) bool { return below(field, row) || below(row, field) }) {
			t.Errorf("%s has no field %s", kind, row)
		}
	}
}

// ofKubeVirt: the type is one of kubevirt.io's, or of our copy of them.
func ofKubeVirt(t reflect.Type) bool {
	return strings.HasSuffix(t.PkgPath(), "kubevirt.io/api/core/v1") || t.PkgPath() == reflect.TypeFor[ours.VirtualMachine]().PkgPath()
}

// everyField lists the JSON paths of a type of kubevirt.io, down to types of other groups and to what is no struct. A list has [].
func everyField(path string, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.NumField() == 0 || !ofKubeVirt(t) {
		return []string{strings.TrimPrefix(path, ".")}
	}
	var out []string
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && strings.Contains(options, "inline"):
			out = append(out, inlined(path, t.Field(i).Type)...)
		default:
			out = append(out, everyField(path+"."+name, t.Field(i).Type)...)
		}
	}
	return out
}

// inlined lists the paths of the fields of an embedded struct, whichever group it is of.
func inlined(path string, t reflect.Type) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if ofKubeVirt(t) {
		return everyField(path, t)
	}
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, everyField(path+"."+name, t.Field(i).Type)...)
	}
	return out
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
