package render

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

func TestPresent(t *testing.T) {
	for name, c := range map[string]struct {
		state *kubevirt.MigrationState
		want  string
	}{
		"never moved":        {nil, "virt-launcher-web-abcde"},
		"moves":              {&kubevirt.MigrationState{SourcePod: "one", TargetPod: "two"}, "one"},
		"moved":              {&kubevirt.MigrationState{SourcePod: "one", TargetPod: "two", Completed: true}, "two"},
		"could not":          {&kubevirt.MigrationState{SourcePod: "two", TargetPod: "three", Completed: true, Failed: true}, "two"},
		"refused before any": {&kubevirt.MigrationState{Completed: true, Failed: true}, "virt-launcher-web-abcde"},
	} {
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "abcdefg"}}
		i.Status.MigrationState = c.state
		if got := Present(i); got != c.want {
			t.Errorf("%s: %s instead of %s", name, got, c.want)
		}
	}
}
