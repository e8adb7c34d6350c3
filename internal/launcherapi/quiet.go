package launcherapi

import "time"

// QuietSocket is the socket where `launcher freeze` and `launcher thaw` connect to the launcher of their pod. They send a line with the verb and
// get a Quiet.
const QuietSocket = OwnDir + "/quiet.sock"

// The verbs.
const (
	FreezeVerb = "freeze" // freeze the guest's filesystems
	ThawVerb   = "thaw"   // thaw them
)

// MostQuiet is the longest time that the filesystems stay frozen, because the process that froze them may be gone.
const MostQuiet = time.Minute

// Quiet is the answer.
type Quiet struct {
	// Agent says that the guest has an agent, which did what it was asked to.
	Agent bool `json:"agent"`
	// Held says that the filesystems were frozen until they were thawed by a request, so a snapshot that was taken meanwhile is consistent.
	Held   bool   `json:"held"`
	Detail string `json:"detail,omitempty"` // the agent's error
}
