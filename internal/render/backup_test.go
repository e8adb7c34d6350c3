package render

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestBackupHooks: a backup tool is told what to run in which container, unless its machine says otherwise; a consumer has no guest to freeze.
func TestBackupHooks(t *testing.T) {
	for skip, want := range map[string]int{"": 5, "false": 5, "true": 0} {
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team", UID: "0123456789"}}
		if skip != "" {
			i.Annotations = map[string]string{"kubevirt.io/skip-backup-hooks": skip}
		}
		for payload, most := range map[Payload]int{Launcher: want, Consumer: 0} {
			pod, err := Machine{Instance: i}.Pod(payload)
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, when := range []string{"pre", "post"} {
				for _, what := range []string{"container", "command", "timeout"} {
					if _, ok := pod.Annotations[when+".hook.backup.velero.io/"+what]; ok {
						found++
					}
				}
			}
			if found != most {
				t.Errorf("skip %q, payload %d: %d hooks, want %d", skip, payload, found, most)
			}
			if most == 0 {
				continue
			}
			var command []string
			if err := json.Unmarshal([]byte(pod.Annotations["pre.hook.backup.velero.io/command"]), &command); err != nil || command[0] != "/usr/bin/launcher" {
				t.Errorf("the command is %q: %v", command, err)
			}
		}
	}
}
