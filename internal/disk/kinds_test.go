package disk

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

// TestEveryVolumeHasARow: each field of VolumeSource has one row, which names it, and each row is of a field.
func TestEveryVolumeHasARow(t *testing.T) {
	seen := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[kubevirt.VolumeSource]()) {
		if field.Anonymous {
			continue // its fields follow
		}
		var s kubevirt.VolumeSource
		value := reflect.ValueOf(&s).Elem().FieldByIndex(field.Index)
		value.Set(reflect.New(value.Type().Elem()))
		want, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if len(field.Index) > 1 {
			want = "network"
		}
		rows := 0
		for _, k := range kinds {
			if k.is(s) {
				rows++
			}
		}
		k := Of(s)
		if rows != 1 || k.Field != want {
			t.Errorf("%s has %d rows, and the first is %q", field.Name, rows, k.Field)
		}
		seen[k.Field] = true
		if (k.Moves == Never) != (k.Cause != "") {
			t.Errorf("%s moves %q, and the cause is %q", field.Name, k.Moves, k.Cause)
		}
		if k.Cause != "" && state.OfFixed(k.Cause).Text("root", "") == "" {
			t.Errorf("%s: cause %q has no text", field.Name, k.Cause)
		}
		if name, _ := Claim(kubevirt.Volume{VolumeSource: s}); name != "" {
			t.Errorf("%s is in claim %q without a name of one", field.Name, name)
		}
	}
	for _, k := range kinds {
		if !seen[k.Field] {
			t.Errorf("row %q is of no field", k.Field)
		}
	}
}

// TestClaim: a claim is found by whatever names it, and a disk that the guest has a copy of is only read.
func TestClaim(t *testing.T) {
	for name, c := range map[string]struct {
		source   kubevirt.VolumeSource
		readOnly bool
	}{
		"claim":            {kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "c"}}, false},
		"claim, only read": {kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "c", ReadOnly: true}}, true},
		"data volume":      {kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "c"}}, false},
		"ephemeral":        {kubevirt.VolumeSource{Ephemeral: &kubevirt.EphemeralSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}, true},
	} {
		if claim, readOnly := Claim(kubevirt.Volume{Name: "root", VolumeSource: c.source}); claim != "c" || readOnly != c.readOnly {
			t.Errorf("%s: claim %q, read-only %t", name, claim, readOnly)
		}
	}
	if claim, _ := Claim(kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{}}}); claim != "" {
		t.Errorf("an empty disk is in claim %q", claim)
	}
}
