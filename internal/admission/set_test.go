package admission

import (
	"reflect"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestSet: every source of a volume and every kind of disk counts as one.
func TestSet(t *testing.T) {
	count[kubevirt.VolumeSource](t)
	count[kubevirt.DiskDevice](t)
}

func count[T kubevirt.VolumeSource | kubevirt.DiskDevice](t *testing.T) {
	t.Helper()
	var all T
	if n := set(all); n != 0 {
		t.Errorf("an empty %T has %d fields", all, n)
	}
	want := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if f.Anonymous {
			continue
		}
		var one T
		for _, v := range []*T{&one, &all} {
			reflect.ValueOf(v).Elem().FieldByIndex(f.Index).Set(reflect.New(f.Type.Elem()))
		}
		if n := set(one); n != 1 {
			t.Errorf("%s counts as %d", f.Name, n)
		}
		want++
	}
	if n := set(all); n != want {
		t.Errorf("%d of %d fields of %T count", n, want, all)
	}
}
