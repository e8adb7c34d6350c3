package snapshot

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Source is the snapshot that is put back.
type Source int

// The situations of the snapshot.
const (
	Ready   Source = iota
	Pending        // it is not there, or not complete yet
	Void           // it failed, or parts of it are gone
)

// Claims is the state of the machine's claims: the worst of them counts.
type Claims int

// The situations of the claims.
const (
	Bound    Claims = iota // all are this restore's, with their data
	Made                   // all are this restore's
	Open                   // all are this restore's; some wait to be given the volume that they name
	Absent                 // some do not exist
	Leaving                // some of the old ones are being deleted
	Old                    // some are still the ones that will be replaced
	InUse                  // ... and one is in use
	Stranger               // one belongs to another owner, or is in the way of a machine that will be made: it is not ours to delete
)

// Stage is how far a restore has gone with the machine that it is for.
type Stage int

// The stages. Only a restore to the machine that the snapshot is of replaces anything.
const (
	Elsewhere Stage = iota // the machine is made by the restore: nothing is replaced
	Preparing              // the machine has the disks that it had
	Committed              // it is written down that its claims are replaced: there is only one way, forward
)

// Volumes is the state of the volumes that will replace the machine's: the worst of them counts. They are made under names of the
// restore, in staged claims.
type Volumes int

// The situations of the volumes.
const (
	There    Volumes = iota // all are bound to their staged claims, or have the names of the machine's claims
	Unbound                 // some are being made
	Troubled                // ... and the storage says why one is not
	Unplaced                // some need a node to be made on
	Unmade                  // some staged claims do not exist
	Blocked                 // one cannot be made: its class is missing, or something else has its name
)

// RestoreFacts is everything the decision about a restore depends on.
type RestoreFacts struct {
	Source  Source
	Machine Machine
	Policy  Policy
	// Late: the time a running machine is waited for has passed.
	Late    bool
	Stage   Stage
	Volumes Volumes
	Claims  Claims
	// Changed: the machine's spec is not that of the snapshot.
	Changed bool
	// Over: it was complete, or had failed, before.
	Over Over
	// Withdrawn: the restore is being deleted.
	Withdrawn bool
}

// Policy says what happens if the machine is running.
type Policy int

// The policies.
const (
	WaitAWhile Policy = iota
	Wait
	Stop
	Fail
)

// Over is how a restore ended.
type Over int

// The ends.
const (
	NotOver Over = iota
	Complete
	Failed
)

// The actions on a restore.
const (
	MakeMachine Action = "MakeMachine" // from the snapshot, stopped
	StopMachine Action = "StopMachine" // end its instance; the machine makes no other while it is restored
	Guard       Action = "Guard"       // keep the restore, and what the snapshot consists of, until CleanUp
	MakeVolumes Action = "MakeVolumes" // from the VolumeSnapshots, in staged claims
	Place       Action = "Place"       // choose a node for volumes that need one
	Commit      Action = "Commit"      // have the old volumes kept, and write down that the claims are replaced
	DropClaims  Action = "DropClaims"  // delete the claims that will be replaced
	MakeClaims  Action = "MakeClaims"  // under the names they have in the target: of the new volumes, or from the VolumeSnapshots
	Give        Action = "Give"        // the new volumes to the claims that name them
	ChangeBack  Action = "ChangeBack"  // give the machine the spec it had
	CleanUp     Action = "CleanUp"     // staged claims, and old volumes of claims that are gone; the restore is free to go
)

// Restore finds the first rule that holds.
func Restore(f RestoreFacts) Plan { return decide.First(restoreRules, f) }

// waits reports whether a user has to stop the machine before volumes are made.
func (f RestoreFacts) waits() bool { return f.Stage == Preparing && f.Policy != Stop }

// uncommitted reports whether giving up leaves the machine as it was.
func (f RestoreFacts) uncommitted() bool { return f.Stage != Committed }

// restoreRules is the whole life of a restore; first match wins. No volume of the machine is deleted before every new volume
// exists, the machine is stopped and no other pod uses its claims. Until then a restore may be deleted, and the machine is
// unchanged; after that it continues, even if it or the snapshot is deleted.
var restoreRules = []decide.Rule[RestoreFacts, Action, state.SnapshotReason]{
	{"a restore that is deleted in time is withdrawn",
		func(f RestoreFacts) bool { return f.Withdrawn && (f.uncommitted() || f.Over != NotOver) }, []Action{CleanUp}, state.RestoreWithdrawn},
	{"a complete restore is never repeated", func(f RestoreFacts) bool { return f.Over == Complete }, nil, state.RestoreDone},
	{"a failed restore is never repeated", func(f RestoreFacts) bool { return f.Over == Failed }, nil, state.RestoreFailed},
	{"a snapshot that is not whole cannot be put back",
		func(f RestoreFacts) bool { return f.Source == Void && f.uncommitted() }, []Action{CleanUp}, state.RestoreFailed},
	{"a snapshot that is being taken is waited for",
		func(f RestoreFacts) bool { return f.Source == Pending && f.uncommitted() }, nil, state.RestoreWaiting},
	{"a machine that is another one is left alone", func(f RestoreFacts) bool { return f.Machine == Other }, nil, state.RestoreTaken},
	{"a claim of somebody else is left alone",
		func(f RestoreFacts) bool { return f.strange() && f.uncommitted() }, []Action{CleanUp}, state.RestoreFailed},
	{"a claim of somebody else that came in between is waited out", func(f RestoreFacts) bool { return f.strange() }, nil, state.RestoreStuck},
	{"a second restore of a machine waits for the first", func(f RestoreFacts) bool { return f.Machine == Contended }, nil, state.RestoreQueued},
	{"a machine that does not exist is made", func(f RestoreFacts) bool { return f.Machine == NoMachine }, []Action{MakeMachine}, state.RestoreMachine},

	{"a running machine fails a restore that must not wait",
		func(f RestoreFacts) bool {
			return f.Machine == Running && f.waits() && (f.Policy == Fail || f.Policy == WaitAWhile && f.Late)
		},
		[]Action{CleanUp}, state.RestoreRefused},
	{"a running machine is waited for",
		func(f RestoreFacts) bool { return (f.Machine == Running || f.Machine == Between) && f.waits() }, nil, state.RestoreStopping},
	{"a machine that runs too early is stopped",
		func(f RestoreFacts) bool { return f.Machine == Running && f.Stage != Preparing }, []Action{StopMachine}, state.RestoreStopping},

	{"a volume that was lost since is made again", func(f RestoreFacts) bool { return f.Stage == Committed && f.Volumes == Unmade },
		[]Action{MakeVolumes}, state.RestoreStuck},
	{"a volume that was lost since needs a node again", func(f RestoreFacts) bool { return f.Stage == Committed && f.Volumes == Unplaced },
		[]Action{Place}, state.RestoreStuck},
	{"a volume that was lost since is waited for", func(f RestoreFacts) bool { return f.Stage == Committed && f.Volumes != There }, nil, state.RestoreStuck},
	{"a volume that cannot be made is said", func(f RestoreFacts) bool { return f.prepares(Blocked) }, nil, state.RestoreBlocked},
	{"volumes are made from the snapshot", func(f RestoreFacts) bool { return f.prepares(Unmade) }, []Action{Guard, MakeVolumes}, state.RestoreStaging},
	{"a volume that needs a node is given one", func(f RestoreFacts) bool { return f.prepares(Unplaced) }, []Action{Place}, state.RestoreBlocked},
	{"a volume that the storage does not make is said", func(f RestoreFacts) bool { return f.prepares(Troubled) }, nil, state.RestoreBlocked},
	{"volumes get their data", func(f RestoreFacts) bool { return f.prepares(Unbound) }, nil, state.RestoreStaging},

	{"a running machine is stopped when its volumes are there",
		func(f RestoreFacts) bool { return f.Machine == Running }, []Action{StopMachine}, state.RestoreStopping},
	{"a machine that is stopping is waited for", func(f RestoreFacts) bool { return f.Machine == Between }, nil, state.RestoreStopping},
	{"a claim that somebody uses is left to them", func(f RestoreFacts) bool { return f.Claims == InUse }, nil, state.RestoreInUse},
	{"claims are replaced when everything for it is there",
		func(f RestoreFacts) bool { return f.Stage == Preparing && f.Claims >= Open }, []Action{Commit}, state.RestoreReplacing},
	{"old claims are deleted", func(f RestoreFacts) bool { return f.Claims == Old }, []Action{DropClaims}, state.RestoreReplacing},
	{"old claims are waited out", func(f RestoreFacts) bool { return f.Claims == Leaving }, nil, state.RestoreReplacing},
	{"claims are made", func(f RestoreFacts) bool { return f.Claims == Absent }, []Action{MakeClaims}, state.RestoreMaking},
	{"claims get their volumes", func(f RestoreFacts) bool { return f.Claims == Open && f.Stage == Committed }, []Action{Give}, state.RestoreReplacing},
	{"the machine becomes what it was", func(f RestoreFacts) bool { return f.Changed }, []Action{ChangeBack}, state.RestoreMaking},
	{"claims get their data", func(f RestoreFacts) bool { return f.Claims == Made || f.Claims == Open }, nil, state.RestoreMaking},
	{"a machine with its claims is restored", func(RestoreFacts) bool { return true }, []Action{CleanUp}, state.RestoreDone},
}

// prepares reports whether the new volumes are in this state while the machine still has its own.
func (f RestoreFacts) prepares(v Volumes) bool { return f.Stage == Preparing && f.Volumes == v }

// strange reports whether some claim is not the restore's to replace. A machine that it makes itself has none that are.
func (f RestoreFacts) strange() bool {
	return f.Claims == Stranger || f.Stage == Elsewhere && (f.Claims == Old || f.Claims == InUse)
}

func (s Source) String() string { return decide.Name(s, "ready", "pending", "void") }
func (c Claims) String() string {
	return decide.Name(c, "bound", "made", "open", "absent", "leaving", "old", "in-use", "stranger")
}
func (s Stage) String() string { return decide.Name(s, "elsewhere", "preparing", "committed") }
func (v Volumes) String() string {
	return decide.Name(v, "there", "unbound", "troubled", "unplaced", "unmade", "blocked")
}
func (p Policy) String() string { return decide.Name(p, "wait-a-while", "wait", "stop", "fail") }
func (o Over) String() string   { return decide.Name(o, "going-on", "complete", "failed") }
