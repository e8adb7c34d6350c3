package launcherapi

import (
	"cmp"
	"time"
)

// A guest moves from one launcher, the source, to another, the target. Both have keys that are made for this move alone. The source opens
// connections to the target, and QEMU and libvirt of both sides communicate over them.
//
// Only one side runs the guest at any time. The target receives the guest paused, and runs it when the source or the controller tells it that the
// source's has ended; never because it has not heard from the source for a while. A source that does not know whether the target has the whole
// guest keeps running it.
const (
	// MoveKeysDir has the certificates and keys of the present move: ca.crt, and .crt and .key of one side. It is empty if there is no move.
	MoveKeysDir = "/run/berth/move"
	MoveSource  = "source"
	MoveTarget  = "tls" // as a Secret of type kubernetes.io/tls names it
	// MoveFile has a Move, the order about the present move.
	MoveFile = "move.json"
	// MovePort is the port where a target waits for its source.
	MovePort = 8082
)

// Move is an order to a launcher about a move. The controller writes it.
type Move struct {
	// ID is the name that the keys are for: the UID of the migration.
	ID string `json:"id"`
	// To is the address of the target with its port, and Pod its name. The source uses them.
	To  string `json:"to,omitempty"`
	Pod string `json:"pod,omitempty"`
	// Cancel tells the source to keep its guest, if that is still possible.
	Cancel bool `json:"cancel,omitempty"`
	// Run tells the target that the guest of the source has ended.
	Run bool `json:"run,omitempty"`
	// Volumes lists the disks that the target has. The guest is sent only if its disks are the same.
	Volumes []string `json:"volumes,omitempty"`
	// Disks lists the volumes for which the target has other claims: their disks are sent.
	Disks []string `json:"disks,omitempty"`
	// Opened lists the volumes whose copies the target opens where they are: they are not sent.
	Opened []string `json:"opened,omitempty"`
	// Limits are the limits of the move, for the source. Policy is the MigrationPolicy that sets them; empty if none does.
	Limits MoveLimits `json:"limits,omitzero"`
	Policy string     `json:"policy,omitempty"`
}

// MoveLimits are an administrator's limits for moves.
type MoveLimits struct {
	// Bandwidth is the number of bytes to send per second; 0 if there is no limit.
	Bandwidth int64 `json:"bandwidth,omitempty"`
	// PerGiB is the number of seconds that a move may take for each GiB, and Still the number without any progress; 0 means 150.
	PerGiB int64 `json:"perGiB,omitempty"`
	Still  int64 `json:"still,omitempty"`
	// Downtime is the number of milliseconds that the guest may be paused at the end; 0 means 300, QEMU's default.
	Downtime int64 `json:"downtime,omitempty"`
	// Converge slows down a guest that writes faster than it can be sent.
	Converge bool `json:"converge,omitempty"`
}

// moveSeconds is the default of PerGiB and Still, which is KubeVirt's.
const moveSeconds = 150

// Each returns how long a move may take for each GiB.
func (l MoveLimits) Each() time.Duration {
	return time.Duration(cmp.Or(l.PerGiB, moveSeconds)) * time.Second
}

// Stall returns how long a move may make no progress.
func (l MoveLimits) Stall() time.Duration {
	return time.Duration(cmp.Or(l.Still, moveSeconds)) * time.Second
}

// MoveStage is the stage of a launcher in a move.
type MoveStage string

// The stages. A target that runs its guest is also ready, and a source whose guest has gone has ended with a report.
const (
	MoveWaits   MoveStage = "Waits"   // the target takes connections
	MoveSends   MoveStage = "Sends"   // the source sends
	MoveHolds   MoveStage = "Holds"   // the target has the whole guest, paused
	MoveRuns    MoveStage = "Runs"    // the target runs the guest
	MoveFailed  MoveStage = "Failed"  // the source keeps running its guest
	MoveStopped MoveStage = "Stopped" // the same, because the move was cancelled
)

// Moving is a launcher's report about a move.
type Moving struct {
	ID     string    `json:"id"`
	Stage  MoveStage `json:"stage"`
	Detail string    `json:"detail,omitempty"` // why the move failed or waits
	// Sent of Total bytes are sent. The total grows while the guest writes.
	Sent  int64 `json:"sent,omitempty"`
	Total int64 `json:"total,omitempty"`
}
