package v1alpha1_test

import (
	"reflect"
	"testing"

	upstream "kubevirt.io/api/backup/v1alpha1"

	ours "github.com/berth-vm/berth/api/backup/v1alpha1"
)

// TestFieldsAreUpstreams: our kinds have upstream's fields, each with its name, its JSON name and whether it may be left out, and no other.
func TestFieldsAreUpstreams(t *testing.T) {
	same(t, "VirtualMachineBackup", reflect.TypeFor[upstream.VirtualMachineBackup](), reflect.TypeFor[ours.VirtualMachineBackup]())
	same(t, "VirtualMachineBackupTracker", reflect.TypeFor[upstream.VirtualMachineBackupTracker](), reflect.TypeFor[ours.VirtualMachineBackupTracker]())
}

// TestWordsAreUpstreams: conditions, reasons, modes and types are spelled as clients know them.
func TestWordsAreUpstreams(t *testing.T) {
	for _, pair := range [][2]string{
		{string(upstream.ConditionComplete), ours.ConditionComplete},
		{string(upstream.ConditionFailed), ours.ConditionFailed},
		{string(upstream.ConditionProgressing), ours.ConditionProgressing},
		{string(upstream.ConditionQuiesced), ours.ConditionQuiesced},
		{upstream.ReasonInitializing, ours.ReasonInitializing},
		{upstream.ReasonInitiated, ours.ReasonInitiated},
		{upstream.ReasonAborting, ours.ReasonAborting},
		{upstream.ReasonCompleted, ours.ReasonCompleted},
		{upstream.ReasonCompletedWithWarning, ours.ReasonCompletedWithWarning},
		{upstream.ReasonFailed, ours.ReasonFailed},
		{upstream.ReasonSourceLost, ours.ReasonSourceLost},
		{upstream.ReasonQuiesceSucceeded, ours.ReasonQuiesceSucceeded},
		{upstream.ReasonQuiesceFailed, ours.ReasonQuiesceFailed},
		{upstream.ReasonQuiesceSkipped, ours.ReasonQuiesceSkipped},
		{string(upstream.PushMode), string(ours.PushMode)},
		{string(upstream.PullMode), string(ours.PullMode)},
		{string(upstream.Full), string(ours.Full)},
		{string(upstream.Incremental), string(ours.Incremental)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("upstream says %q, we say %q", pair[0], pair[1])
		}
	}
	if upstream.SchemeGroupVersion.String() != ours.GroupVersion.String() {
		t.Errorf("upstream's group is %s, ours %s", upstream.SchemeGroupVersion, ours.GroupVersion)
	}
}

func same(t *testing.T, path string, theirs, our reflect.Type) {
	t.Helper()
	for our.Kind() == reflect.Pointer || our.Kind() == reflect.Slice {
		if theirs.Kind() != our.Kind() {
			t.Errorf("%s is a %s upstream and a %s here", path, theirs.Kind(), our.Kind())
			return
		}
		theirs, our = theirs.Elem(), our.Elem()
	}
	if theirs.Kind() != our.Kind() {
		t.Errorf("%s is a %s upstream and a %s here", path, theirs.Kind(), our.Kind())
	}
	if our.Kind() != reflect.Struct || theirs == our {
		return
	}
	if theirs.NumField() != our.NumField() {
		t.Errorf("%s has %d fields upstream and %d here", path, theirs.NumField(), our.NumField())
	}
	for i := range theirs.NumField() {
		field := theirs.Field(i)
		mine, ok := our.FieldByName(field.Name)
		if !ok || mine.Tag.Get("json") != field.Tag.Get("json") {
			t.Errorf("%s.%s is %q upstream and %q here", path, field.Name, field.Tag.Get("json"), mine.Tag.Get("json"))
			continue
		}
		same(t, path+"."+field.Name, field.Type, mine.Type)
	}
}
