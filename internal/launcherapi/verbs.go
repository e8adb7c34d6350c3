package launcherapi

import (
	"encoding/json"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// VerbSocket is where the verbs below reach the launcher of their pod. It takes one line, the verb and what it needs, and
// answers with a Said in one line. The launcher's program reads what a verb needs from its input. After ForwardVerb and VNCVerb the rest is the bytes of the guest, both ways.
const VerbSocket = OwnDir + "/verbs.sock"

// ScreenSocket is where QEMU shows the guest's screen, to this pod's processes only.
const ScreenSocket = StateDir + "/screen.sock"

// The verbs.
const (
	PauseVerb       = "pause"          // stop the guest's processors
	UnpauseVerb     = "unpause"        // let them go on
	OSInfoVerb      = "guestosinfo"    // what the guest agent says about its system
	FilesystemsVerb = "filesystemlist" // the guest's filesystems
	UsersVerb       = "userlist"       // who is logged in
	ForwardVerb     = "forward"        // PROTOCOL PORT: connect to a port of the guest
	VNCVerb         = "vnc"            // connect to the guest's screen
	ScreenshotVerb  = "screenshot"     // HOW: take a picture of the screen; after the answer comes a PNG, of MostPicture bytes at most
	ResetVerb       = "reset"          // reset the machine, as its button does
	SoftRebootVerb  = "softreboot"     // ask the guest to reboot
	FSFreezeVerb    = "fsfreeze"       // SECONDS: freeze the guest's filesystems for a person, for that long at most
	FSThawVerb      = "fsthaw"         // thaw them
)

// The ways to take a picture of a screen.
const (
	ScreenAsItIs = "still"
	ScreenAwake  = "awake" // the pointer is moved before, for a screen that sleeps
)

// MostPicture is how long a picture of a screen is at most: the largest has ten million pixels, and may be noise.
const MostPicture = 32 << 20

// NeedsWords reports whether the verb is followed by words that say what is meant.
func NeedsWords(verb string) bool {
	return verb == ForwardVerb || verb == FSFreezeVerb || verb == ScreenshotVerb || verb == BackupVerb
}

// The hooks that backup tools run in a launcher's pod, before and after they back its claims up. A guest without an agent is backed up
// as it is.
const (
	PreBackupVerb  = "pre-backup"
	PostBackupVerb = "post-backup"
)

// FreezeFor is how long a person's freeze lasts if they do not say.
const FreezeFor = 5 * time.Minute

// MostSaid is how long a Said is at most: the guest decides how many filesystems and users it lists.
const MostSaid = 256 << 10

// Said is what came of a verb.
type Said struct {
	// Refused is why it was not done, for a person; empty: it was.
	Refused string `json:"refused,omitempty"`
	// NoAgent: the guest has no agent that answers.
	NoAgent bool `json:"noAgent,omitempty"`
	// Answer is a document of the guest's, of the verbs that ask for one.
	Answer json.RawMessage `json:"answer,omitempty"`
}

// Pausable is why a machine cannot be paused; empty: it can. The kubelet would end a guest that does not answer its probe.
func Pausable(spec kubevirt.VirtualMachineInstanceSpec) string {
	if spec.LivenessProbe != nil {
		return "Pausing VMIs with LivenessProbe is currently not supported"
	}
	return ""
}
