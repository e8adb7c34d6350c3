package launcherapi

import (
	"cmp"
	"time"
)

// A guest moves from one launcher, the source, to another, the target. Both have keys that are made for this move alone; the
// source opens connections to the target, and whatever QEMU and libvirt have to say to each other goes through them.
//
// There is never more than one guest. The target receives it and holds it still; it lets it run when it is told that the source's
// has ended, by the source itself or by the controller, and never because it has not heard of the source for a while. A source
// that cannot tell whether the target has everything goes on running its guest.
const (
	// MoveKeysDir has the certificates and keys of the move at hand: ca.crt, and .crt and .key of either side. It is empty while there
	// is no move.
	MoveKeysDir = "/run/berth/move"
	MoveSource  = "source"
	MoveTarget  = "tls" // as a Secret of type kubernetes.io/tls names it
	// MoveFile is a Move: what to do about the move at hand.
	MoveFile = "move.json"
	// MovePort is where a target waits for its source.
	MovePort = 8082
)

// Move is what a launcher is told about a move. The controller writes it.
type Move struct {
	// ID is the name that the keys are for: the UID of the migration.
	ID string `json:"id"`
	// To is the address of the target, with its port, and Pod its name. They are for the source.
	To  string `json:"to,omitempty"`
	Pod string `json:"pod,omitempty"`
	// Cancel asks the source to keep its guest, if that can still be done.
	Cancel bool `json:"cancel,omitempty"`
	// Run tells the target that the guest of the source has ended.
	Run bool `json:"run,omitempty"`
	// Volumes are those that the target has. The guest is sent only if its disks are the same.
	Volumes []string `json:"volumes,omitempty"`
	// Disks are the volumes that the target has other claims for: their disks are sent.
	Disks []string `json:"disks,omitempty"`
	// Limits are those of the sending, for the source, and Policy is the MigrationPolicy that they are of; empty: none.
	Limits MoveLimits `json:"limits,omitzero"`
	Policy string     `json:"policy,omitempty"`
}

// MoveLimits are what an administrator says about the sending of guests.
type MoveLimits struct {
	// Bandwidth is how many bytes a second are sent; 0: as many as can be.
	Bandwidth int64 `json:"bandwidth,omitempty"`
	// PerGiB is how many seconds it may take for each GiB, and Still for how many it may make no progress at all; 0: 150.
	PerGiB int64 `json:"perGiB,omitempty"`
	Still  int64 `json:"still,omitempty"`
	// Downtime is for how many milliseconds the guest may stand still at the end; 0: 300, which is QEMU's.
	Downtime int64 `json:"downtime,omitempty"`
	// Converge slows a guest down that writes faster than it can be sent.
	Converge bool `json:"converge,omitempty"`
}

// moveSeconds is the default of how long a move may take for each GiB, and how long it may make no progress. It is upstream's.
const moveSeconds = 150

// Each is how long a move may take for each GiB.
func (l MoveLimits) Each() time.Duration {
	return time.Duration(cmp.Or(l.PerGiB, moveSeconds)) * time.Second
}

// Stall is for how long it may make no progress.
func (l MoveLimits) Stall() time.Duration {
	return time.Duration(cmp.Or(l.Still, moveSeconds)) * time.Second
}

// MoveStage is how far a launcher is with a move.
type MoveStage string

// The stages. Of a target that runs its guest the readiness tells, of a source that has none any more its report.
const (
	MoveWaits   MoveStage = "Waits"   // the target takes connections
	MoveSends   MoveStage = "Sends"   // the source sends
	MoveHolds   MoveStage = "Holds"   // the target has the whole guest and holds it still
	MoveRuns    MoveStage = "Runs"    // the target lets it run
	MoveFailed  MoveStage = "Failed"  // the source goes on running its guest
	MoveStopped MoveStage = "Stopped" // the same, because it was asked to
)

// Moving is what a launcher says about a move.
type Moving struct {
	ID     string    `json:"id"`
	Stage  MoveStage `json:"stage"`
	Detail string    `json:"detail,omitempty"` // of one that failed, or that waits
	// Sent of Total bytes; a guest that writes makes the total grow.
	Sent  int64 `json:"sent,omitempty"`
	Total int64 `json:"total,omitempty"`
}
