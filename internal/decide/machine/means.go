package machine

import "github.com/berth-vm/berth/internal/decide"

// Means says whether a machine has all that it needs to run, besides a node.
type Means int

// The situations of a machine's means. All except Provided prevent a stopped machine from starting, and from taking disks.
const (
	Provided          Means = iota // its claims are its own or can be made, and what it names is known
	Restoring                      // its claims are being put back from a snapshot
	ClaimTaken                     // a claim of the name is not this machine's
	ClaimVague                     // a claim cannot be made: something is missing and nothing at hand provides it
	TypeMissing                    // its instance type, or the copy of it that it is to use, is not there
	PreferenceMissing              // its preference, or the copy of it that it is to use, is not there
	KindUnfit                      // its instance type and preference do not go with it
	Unsupported                    // its spec asks for what machines here cannot have, and admission was not there to refuse it
	VolumeAwaited                  // a container has not made a volume yet, or not said what it is
)

func (m Means) String() string {
	return decide.Name(m, "provided", "restoring", "claim-taken", "claim-vague", "type-missing", "preference-missing", "kind-unfit", "unsupported", "volume-awaited")
}
