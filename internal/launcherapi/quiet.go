package launcherapi

import "time"

// QuietSocket is where `launcher freeze` and `launcher thaw` reach the launcher of their pod. A line with the verb is
// answered with a Quiet.
const QuietSocket = OwnDir + "/quiet.sock"

// The verbs.
const (
	FreezeVerb = "freeze" // hold the guest's filesystems still
	ThawVerb   = "thaw"   // let them go on
)

// MostQuiet is how long a guest is held still at most. Nobody may be there any more to let it go.
const MostQuiet = time.Minute

// Quiet is what came of it.
type Quiet struct {
	// Agent: the guest has an agent, and it did what it was asked to.
	Agent bool `json:"agent"`
	// Held: the guest was held still until it was let go by request. It is what makes a snapshot that was taken meanwhile a
	// good one.
	Held   bool   `json:"held"`
	Detail string `json:"detail,omitempty"` // the agent's words if it did not
}
