package launcherapi

import (
	"encoding/json"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// VerbSocket is the socket where the verbs below connect to the launcher of their pod. A request is one line, the verb with its words, and the
// answer is a Said in one line. The launcher's program reads the words from its input. After ForwardVerb and VNCVerb the connection carries the
// bytes of the guest in both directions.
const VerbSocket = OwnDir + "/verbs.sock"

// ScreenSocket is the socket of QEMU's VNC server, which only this pod's processes can reach.
const ScreenSocket = StateDir + "/screen.sock"

// The verbs.
const (
	PauseVerb       = "pause"          // pause the guest
	UnpauseVerb     = "unpause"        // resume it
	OSInfoVerb      = "guestosinfo"    // what the guest agent knows about the system
	FilesystemsVerb = "filesystemlist" // the guest's filesystems
	UsersVerb       = "userlist"       // the users who are logged in
	ForwardVerb     = "forward"        // PROTOCOL PORT: connect to a port of the guest
	VNCVerb         = "vnc"            // connect to the guest's screen
	ScreenshotVerb  = "screenshot"     // HOW: take a picture of the screen; after the answer comes a PNG, of MostPicture bytes at most
	ResetVerb       = "reset"          // reset the machine, as a reset button does
	SoftRebootVerb  = "softreboot"     // ask the guest to reboot
	FSFreezeVerb    = "fsfreeze"       // SECONDS: freeze the guest's filesystems for a user, for that long at most
	FSThawVerb      = "fsthaw"         // thaw them
)

// The ways to take a picture of a screen.
const (
	ScreenAsItIs = "still"
	ScreenAwake  = "awake" // the pointer is moved before, for a screen that sleeps
)

// MostPicture is the size of the largest picture of a screen: it has ten million pixels, and may be noise.
const MostPicture = 32 << 20

// NeedsWords reports whether the verb is followed by further words.
func NeedsWords(verb string) bool {
	return verb == ForwardVerb || verb == FSFreezeVerb || verb == ScreenshotVerb || verb == BackupVerb
}

// The hooks that backup tools run in a launcher's pod, before and after they back up its claims. A guest without an agent is backed up without a
// freeze.
const (
	PreBackupVerb  = "pre-backup"
	PostBackupVerb = "post-backup"
)

// FreezeFor is how long the freeze of a user lasts if they set no time.
const FreezeFor = 5 * time.Minute

// MostSaid is the size of the largest Said: a guest can list many filesystems and users.
const MostSaid = 256 << 10

// Said is the answer to a verb.
type Said struct {
	// Refused is why the verb was not carried out, for users; empty if it was.
	Refused string `json:"refused,omitempty"`
	// NoAgent says that no guest agent answers.
	NoAgent bool `json:"noAgent,omitempty"`
	// Answer is the JSON document that some verbs ask for.
	Answer json.RawMessage `json:"answer,omitempty"`
}

// Pausable returns why a machine cannot be paused; empty if it can. A machine with a liveness probe cannot: the kubelet would end its paused guest,
// which does not answer.
func Pausable(spec kubevirt.VirtualMachineInstanceSpec) string {
	if spec.LivenessProbe != nil {
		return "Pausing VMIs with LivenessProbe is currently not supported"
	}
	return ""
}
