package aggregated

import (
	"net/http"
	"strings"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestGuestVerbs: a launcher is asked for what changes no object, and what it refuses is said in the words clients know.
func TestGuestVerbs(t *testing.T) {
	run := func() *world { return &world{instance: vmi(kubevirt.PhaseRunning)} }
	said := func(s launcherapi.Said) *world { return &world{instance: vmi(kubevirt.PhaseRunning), said: s} }
	for name, row := range map[string]struct {
		world  *world
		verb   string
		body   string
		status int
		want   string // words of the refusal
		asked  string
	}{
		"reset":              {run(), "reset", "", 200, "", "reset"},
		"soft reboot":        {run(), "softreboot", "", 200, "", "softreboot"},
		"soft reboot paused": {said(launcherapi.Said{Refused: "VMI is paused"}), "softreboot", "", 409, "VMI is paused", "softreboot"},
		"freeze":             {run(), "freeze", "", 200, "", "fsfreeze 300"},
		"freeze for a while": {run(), "freeze", `{"unfreezeTimeout":"1m30s"}`, 200, "", "fsfreeze 90"},
		"freeze for ever":    {run(), "freeze", `{"unfreezeTimeout":"0s"}`, 200, "", "fsfreeze 300"},
		"freeze for too long": {run(), "freeze", `{"unfreezeTimeout":"25h"}`, 400,
			"unfreezeTimeout 25h0m0s is not between 1s and 24h", ""},
		"freeze backwards": {run(), "freeze", `{"unfreezeTimeout":"-3s"}`, 400, "is not between", ""},
		"freeze nonsense":  {run(), "freeze", `{"unfreezeTimeout":"soon"}`, 400, "cannot be read", ""},
		"unfreeze":         {run(), "unfreeze", "", 200, "", "fsthaw"},
		"no agent": {said(launcherapi.Said{Refused: "nobody answers", NoAgent: true}), "freeze", "", 409,
			"VMI does not have guest agent connected", "fsfreeze 300"},
		"off": {&world{instance: vmi(kubevirt.PhaseScheduling)}, "reset", "", 409, "VMI is not running", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := send(t, serve(t, row.world), http.MethodPut, base+"virtualmachineinstances/vm/"+row.verb, row.body)
			if status != row.status || !strings.Contains(text, row.want) || strings.Join(row.world.asked, " ") != row.asked {
				t.Errorf("got %d %s, asked %q", status, text, row.world.asked)
			}
		})
	}
}

// TestEvacuateCancel: the wish that is taken back is named, so that one that comes later counts.
func TestEvacuateCancel(t *testing.T) {
	machine, owned, leaving := vm(kubevirt.RunAlways), vmi(kubevirt.PhaseRunning), vmi(kubevirt.PhaseRunning)
	machine.UID, owned.OwnerReferences = "m1", ownedRefs("m1")
	leaving.OwnerReferences, leaving.Status.EvacuationNodeName = ownedRefs("other"), "n1"
	for name, row := range map[string]struct {
		world  *world
		kind   string
		body   string
		status int
		want   string // the patch, or words of the refusal
	}{
		"machine":            {&world{machine: machine, instance: owned, evacuation: "p/t"}, "virtualmachines", "{}", 200, `/metadata/annotations={"berth.dev/evacuation-cancelled":"p/t"}`},
		"instance":           {&world{instance: leaving, evacuation: "p/t"}, "virtualmachineinstances", `{"evacuationNodeName":"n1"}`, 200, `/metadata/annotations={"berth.dev/evacuation-cancelled":"p/t"}`},
		"nobody wants it":    {&world{instance: leaving}, "virtualmachineinstances", "{}", 200, ""},
		"dry":                {&world{instance: leaving, evacuation: "p/t"}, "virtualmachineinstances", `{"dryRun":["All"]}`, 200, ""},
		"another node":       {&world{instance: leaving, evacuation: "p/t"}, "virtualmachineinstances", `{"evacuationNodeName":"n2"}`, 409, "it is to leave node n1, not n2"},
		"somebody else's":    {&world{machine: machine, instance: leaving, evacuation: "p/t"}, "virtualmachines", "{}", 409, "is not this VM's"},
		"machine that's off": {&world{machine: machine}, "virtualmachines", "{}", 409, "VMI is not started"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := send(t, serve(t, row.world), http.MethodPut, base+row.kind+"/vm/evacuate/cancel", row.body)
			if status == http.StatusOK {
				text = ""
				for _, c := range row.world.carried {
					text += steps(c)
				}
			}
			if status != row.status || !strings.Contains(text, row.want) || row.want == "" && text != "" {
				t.Errorf("got %d %s", status, text)
			}
		})
	}
}
