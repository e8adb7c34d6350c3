package aggregated

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

func TestMigrate(t *testing.T) {
	under := kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "u9"}, Spec: kubevirt.MigrationSpec{VMIName: "vm"}}
	over := under
	over.Status.Phase = kubevirt.MigrationFailed
	another := under
	another.Spec.VMIName = "other"
	for name, c := range map[string]struct {
		w      world
		body   string
		status int
		says   string
		made   bool
	}{
		"moves":               {world{machine: vm(kubevirt.RunAlways), instance: vmi(kubevirt.PhaseRunning)}, "", http.StatusAccepted, "", true},
		"narrowed":            {world{machine: vm(kubevirt.RunAlways), instance: vmi(kubevirt.PhaseRunning)}, `{"addedNodeSelector":{"zone":"a"}}`, http.StatusAccepted, "", true},
		"dry":                 {world{machine: vm(kubevirt.RunAlways), instance: vmi(kubevirt.PhaseRunning)}, `{"dryRun":["All"]}`, http.StatusAccepted, "", false},
		"one that ended":      {world{machine: vm(kubevirt.RunAlways), instance: vmi(kubevirt.PhaseRunning), migrations: []kubevirt.VirtualMachineInstanceMigration{over, another}}, "", http.StatusAccepted, "", true},
		"one is under way":    {world{machine: vm(kubevirt.RunAlways), instance: vmi(kubevirt.PhaseRunning), migrations: []kubevirt.VirtualMachineInstanceMigration{under}}, "", http.StatusConflict, "in-flight migration detected. Active migration job (u9)", false},
		"not running":         {world{machine: vm(kubevirt.RunAlways), instance: vmi(kubevirt.PhaseScheduled)}, "", http.StatusConflict, "VM is not running", false},
		"stopped":             {world{machine: vm(kubevirt.RunHalted)}, "", http.StatusAccepted, "", true},
		"stopped, under way":  {world{machine: vm(kubevirt.RunHalted), migrations: []kubevirt.VirtualMachineInstanceMigration{under}}, "", http.StatusConflict, "in-flight migration detected", false},
		"no machine":          {world{}, "", http.StatusNotFound, "", false},
		"a body that is none": {world{machine: vm(kubevirt.RunAlways), instance: vmi(kubevirt.PhaseRunning)}, "{", http.StatusBadRequest, "cannot be read", false},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := send(t, serve(t, &c.w), http.MethodPut, base+"virtualmachines/vm/migrate", c.body)
			if status != c.status || !strings.Contains(text, c.says) {
				t.Errorf("%d %s", status, text)
			}
			if made := len(c.w.carried) == 1; made != c.made {
				t.Fatalf("a migration is made: %t", made)
			}
			if !c.made {
				return
			}
			m := c.w.carried[0].Migration
			if m.Spec.VMIName != "vm" || m.Namespace != "ns" || m.GenerateName == "" || m.Labels[kubevirt.LabelMigrated] != "vm" ||
				(m.Spec.AddedNodeSelector["zone"] == "a") != strings.Contains(c.body, "zone") {
				t.Errorf("%+v", m)
			}
			if (m.Annotations[kubevirt.AnnOffline] == "true") != (c.w.instance == nil) {
				t.Errorf("it is taken for one of a machine that does not run: %v", m.Annotations)
			}
		})
	}
}
