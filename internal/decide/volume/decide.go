package volume

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	CreateClaim   Action = "CreateClaim"
	AdoptClaim    Action = "AdoptClaim"
	TakeSnapshot  Action = "TakeSnapshot"  // of a clone's origin
	RestoreOrigin Action = "RestoreOrigin" // a snapshot, to a claim that is there only to be read from
	StartServer   Action = "StartServer"   // the worker that serves a clone's origin
	StartWorker   Action = "StartWorker"   //
	TakeDisks     Action = "TakeDisks"     // record the worker as a holder of its disks, and let it run
	StopWorker    Action = "StopWorker"    //
	DisarmWorker  Action = "DisarmWorker"  // take the keys of one that is done and kept
	RecordRestart Action = "RecordRestart" // count a failed try, so that the count outlives its pod
	RecordStage   Action = "RecordStage"   // one of several stages is complete
	RecordData    Action = "RecordData"    // the contents are complete
	RecordKept    Action = "RecordKept"    // the contents are complete as they were found
	NoteKept      Action = "NoteKept"      // on the volume, that its claim was filled before
	RecordFatal   Action = "RecordFatal"   // the contents will never be complete
	PlaceClaim    Action = "PlaceClaim"    // beside a clone's source
	RemoveClaim   Action = "RemoveClaim"   // an empty one, to make it again in another way
	CleanUp       Action = "CleanUp"       // remove what only the transfer needed: server, snapshot, restored claim, secrets
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.Reason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan {
	p := decide.First(rules, f)
	plan := Plan{Rule: p.Rule, Do: p.Do}
	switch say := p.State.(type) {
	case state.Reason:
		plan.State = say
	case state.Stage:
		plan.State = f.Flow.words().Reason(say)
	}
	return plan
}

// words returns the flow whose words describe f: a volume filled by its driver needs none of its own.
func (f Flow) words() state.Flow {
	switch f {
	case Upload:
		return state.Upload
	case Clone, Provision, Restore, Enlarge, EnlargeRestored:
		return state.Clone
	case Import, External, Staged:
	}
	return state.Import
}

// rules is the whole behaviour of a DataVolume; first match wins. Reading order: what ends the matter, what is missing
// before there can be a claim, the claim until it can be written to, the worker.
var rules = []decide.Rule[Facts, Action, any]{
	{"a claim whose data moved is left to who moves it",
		func(f Facts) bool { return f.Claim == Following }, nil, state.ClaimFollows},
	{"a worker stops when its claim is deleted",
		func(f Facts) bool { return f.Claim == Leaving && f.Worker != NoWorker && f.Worker != Going },
		[]Action{StopWorker}, state.ClaimLeaving},
	{"a deleted claim is waited out",
		func(f Facts) bool { return f.Claim == Leaving }, nil, state.ClaimLeaving},
	{"a claim of somebody else is left alone",
		func(f Facts) bool { return f.Claim == Foreign }, nil, state.ClaimInTheWay},
	{"a claim that lacks what was asked for is not adopted",
		func(f Facts) bool { return f.Claim == Unusable }, nil, state.ClaimUnusable},
	{"a claim that may be adopted is",
		func(f Facts) bool { return f.Claim == Adoptable }, []Action{AdoptClaim, NoteKept}, state.ClaimCreated},
	{"a lost claim is the end",
		func(f Facts) bool { return f.Claim == Lost }, nil, state.ClaimVanished},

	{"a claim said to hold the data is awaited, never made",
		func(f Facts) bool { return absent(f) && complete(f) }, nil, state.ClaimAwaited},
	{"a volume that was there before is kept as it is",
		func(f Facts) bool { return f.Claim == Bound && f.Data == Found && f.Worker == NoWorker },
		[]Action{RecordKept, NoteKept, CleanUp}, state.PrePopulated},
	{"a worker has no business with a volume that is to be kept",
		func(f Facts) bool { return f.Data == Found && f.Worker != NoWorker && f.Worker != Going && !absent(f) },
		[]Action{StopWorker}, state.WorkerGoing},
	{"complete data on a bound claim is the goal",
		func(f Facts) bool { return f.Claim == Bound && complete(f) && f.Flow == External },
		nil, state.Populated},
	{"complete data needs no worker",
		func(f Facts) bool {
			return f.Claim == Bound && f.Data == Present && f.Worker != NoWorker && f.Worker != Going && f.Worker != Retained
		},
		[]Action{StopWorker, CleanUp}, state.Succeeded},
	{"data that was there before needs no worker",
		func(f Facts) bool {
			return f.Claim == Bound && f.Data == Kept && f.Worker != NoWorker && f.Worker != Going && f.Worker != Retained
		},
		[]Action{StopWorker, NoteKept, CleanUp}, state.PrePopulated},
	{"data that was there before is the goal",
		func(f Facts) bool { return f.Claim == Bound && f.Data == Kept }, []Action{NoteKept, CleanUp}, state.PrePopulated},
	{"complete data needs no helpers",
		func(f Facts) bool { return f.Claim == Bound && f.Data == Present },
		[]Action{CleanUp}, state.Succeeded},
	{"stages that are complete need no worker",
		func(f Facts) bool {
			return staged(f) && f.Worker != NoWorker && f.Worker != Going
		},
		[]Action{StopWorker}, state.ImportPaused},
	{"the last stage is the goal",
		func(f Facts) bool { return f.Claim == Bound && f.Data == Applied }, []Action{RecordData, CleanUp}, state.Succeeded},
	{"an import in stages waits for the next",
		func(f Facts) bool { return staged(f) }, nil, state.ImportPaused},
	{"a condemned transfer stays failed",
		func(f Facts) bool { return f.Data == Condemned && !absent(f) }, []Action{CleanUp}, state.GivenUp},

	{"a claim for a volume that is to be kept needs no source",
		func(f Facts) bool { return f.Claim == Absent && f.Data == Found }, []Action{CreateClaim}, state.ClaimCreated},
	{"only those who may read the source may clone it",
		func(f Facts) bool { return open(f) && f.Origin == Forbidden }, nil, state.SourceForbidden},
	{"a clone waits for its source",
		func(f Facts) bool { return open(f) && f.Origin == Missing }, nil, state.SourceMissing},
	{"a clone waits until its source is filled",
		func(f Facts) bool { return open(f) && f.Origin == Unfilled }, nil, state.SourceUnfilled},
	{"a source that does not fit is refused",
		func(f Facts) bool { return open(f) && f.Origin == Unfit }, nil, state.SourceRefused},
	{"a snapshot comes before the claim made of it",
		func(f Facts) bool { return open(f) && f.Origin == Preparing },
		[]Action{TakeSnapshot}, state.SnapshotTaking},
	{"a claim that cannot be completed says what it lacks",
		func(f Facts) bool { return f.Claim == Incomplete }, nil, state.ClaimIncomplete},
	{"a claim is made",
		func(f Facts) bool { return f.Claim == Absent }, []Action{CreateClaim}, state.ClaimCreated},

	{"a claim that has no room for its source is made, and not filled",
		func(f Facts) bool { return f.Origin == Larger && f.Data == None && f.Worker == NoWorker }, nil, state.ClaimUnusable},

	{"a claim that its driver cannot fill where it is wanted is made again",
		func(f Facts) bool { return f.Origin == Misplaced && byDriver(f) && f.Claim != Bound && f.Data == None },
		[]Action{RemoveClaim}, state.ClaimLeaving},
	{"a snapshot that is wanted is restored beside itself",
		func(f Facts) bool { return f.Origin == Beside && restores(f) && f.Claim == Held },
		[]Action{PlaceClaim}, state.SnapshotRestored},
	{"a clone that is wanted is made beside its source",
		func(f Facts) bool { return f.Origin == Beside && byDriver(f) && f.Claim == Held },
		[]Action{PlaceClaim}, state.CSICloning},
	{"a held claim waits for its first consumer",
		func(f Facts) bool { return f.Claim == Held }, nil, state.Held},
	{"another populator fills the claim",
		func(f Facts) bool { return f.Flow == External && f.Claim != Bound }, nil, state.Populating},
	{"another populator is done when the claim is bound",
		func(f Facts) bool { return f.Flow == External }, []Action{RecordData}, state.Populated},
	{"a driver that clones at once is waited for",
		func(f Facts) bool { return (f.Flow == Provision || f.Flow == Enlarge) && f.Claim == Unbound }, nil, state.CSICloning},
	{"a driver that restores at once is waited for",
		func(f Facts) bool { return restores(f) && f.Claim == Unbound }, nil, state.SnapshotRestored},
	{"an unbound claim is waited for",
		func(f Facts) bool { return f.Claim == Unbound }, nil, state.ClaimUnbound},
	{"complete data on a claim that may be bound at once needs no worker but a consumer",
		func(f Facts) bool { return f.Claim == Waiting && complete(f) }, nil, state.Held},
	{"a volume that is to be kept is bound by itself",
		func(f Facts) bool { return f.Claim == Waiting && f.Data == Found }, nil, state.ClaimUnbound},
	{"a bound claim that needs no bytes is complete",
		func(f Facts) bool {
			return f.Claim == Bound && (f.Flow == Provision || f.Flow == Restore)
		},
		[]Action{RecordData, CleanUp}, state.Succeeded},

	{"a clone whose source somebody wrote to meanwhile is made again",
		func(f Facts) bool { return f.Origin == Busy && f.Flow == Clone && f.Data == None && reads(f.Worker) },
		[]Action{StopWorker}, state.SourceBusy},
	{"a worker does not write where somebody else does",
		func(f Facts) bool { return f.Access == Taken && f.Data == None && alive(f.Worker) }, []Action{StopWorker}, state.ClaimInUse},
	{"a worker done with a stage leaves its record first",
		func(f Facts) bool { return f.Flow == Staged && (f.Worker == Done || f.Worker == Retained) },
		[]Action{RecordStage, StopWorker}, state.InProgress},
	{"a worker done leaves its record first",
		func(f Facts) bool { return f.Worker == Done }, []Action{RecordData, StopWorker, CleanUp}, state.Succeeded},
	{"a worker done that is to be kept leaves its record and its log",
		func(f Facts) bool { return f.Worker == Retained }, []Action{DisarmWorker, RecordData, CleanUp}, state.Succeeded},
	{"a fatal report ends the transfer",
		func(f Facts) bool { return f.Worker == Fatal }, []Action{RecordFatal}, state.GivenUp},
	{"a failed worker is tried again when its pause is over",
		func(f Facts) bool { return f.Worker == Failed && f.RetryDue },
		[]Action{RecordRestart, StopWorker}, state.Retrying},
	{"a failed worker pauses",
		func(f Facts) bool { return f.Worker == Failed }, nil, state.Retrying},
	{"a worker that no node can ever have is made again in another way",
		func(f Facts) bool { return f.Worker == Stranded }, []Action{StopWorker}, state.WorkerGoing},
	{"the last worker must be gone before the next",
		func(f Facts) bool { return f.Worker == Going }, []Action{StopWorker}, state.WorkerGoing},
	{"what may be somebody's data is not written over",
		func(f Facts) bool { return f.Data == Unknown && f.Worker == NoWorker }, nil, state.ContentsUnknown},
	{"a busy source is waited for",
		func(f Facts) bool { return open(f) && f.Origin == Busy }, []Action{CleanUp}, state.SourceBusy},
	{"a snapshot that its driver cannot restore in place is restored to be read from",
		func(f Facts) bool { return open(f) && f.Origin == Restoring },
		[]Action{RestoreOrigin}, state.SnapshotRestored},
	{"a source on another node is served first",
		func(f Facts) bool { return open(f) && f.Origin == Unready },
		[]Action{StartServer}, state.Scheduled},
	{"a claim that somebody else has is waited for",
		func(f Facts) bool { return f.Worker == NoWorker && f.Access == Taken }, nil, state.ClaimInUse},
	{"a backup that is gone is waited for",
		func(f Facts) bool { return f.Flow == Import && f.Origin == Missing && f.Worker == NoWorker }, nil, state.SourceMissing},
	{"a worker is started",
		func(f Facts) bool { return f.Worker == NoWorker }, []Action{StartWorker}, state.Scheduled},
	{"a worker is recorded as a holder of its disks before it runs",
		func(f Facts) bool { return f.Access == Unrecorded && (f.Worker == Pending || f.Worker == Unplaceable) },
		[]Action{TakeDisks}, state.Scheduled},
	{"a worker that runs is recorded with its node, and with what was bound for it", // or was made before there were records
		func(f Facts) bool { return f.Access == Unrecorded && f.Worker == Running }, []Action{TakeDisks}, state.InProgress},
	{"a source that is not served any more is served again for the worker that reads it",
		func(f Facts) bool { return reading(f) && f.Origin == Unready }, []Action{StartServer}, state.InProgress},
	{"a worker whose server was replaced is made again, to read from the new one",
		func(f Facts) bool { return reading(f) && f.Origin == Replaced }, []Action{StopWorker}, state.WorkerGoing},
	{"a worker without a node says why",
		func(f Facts) bool { return f.Worker == Unplaceable }, nil, state.Unplaceable},
	{"a worker without its image says why",
		func(f Facts) bool { return f.Worker == Unfetchable }, nil, state.Unfetchable},
	{"a worker waits for its node",
		func(f Facts) bool { return f.Worker == Pending }, nil, state.Scheduled},
	{"a worker that cannot be reached is waited for",
		func(f Facts) bool { return f.Worker == CutOff }, nil, state.CutOff},
	{"a worker moves the bytes",
		func(f Facts) bool { return f.Worker == Running }, nil, state.InProgress},
}

// absent reports whether there is no claim, whether or not one could be made.
func absent(f Facts) bool { return f.Claim == Absent || f.Claim == Incomplete }

// staged reports whether all stages that are asked for are complete, on a claim that they could be written to.
func staged(f Facts) bool {
	return (f.Claim == Bound || f.Claim == Waiting) && (f.Data == Paused || f.Data == Applied)
}

// complete reports whether all data is there, however it came there.
func complete(f Facts) bool { return f.Data == Present || f.Data == Kept }

// alive reports whether the worker may write, now or later.
func alive(w Worker) bool {
	return w == Pending || w == Unplaceable || w == Stranded || w == Unfetchable || w == Running || w == CutOff
}

// reads reports whether the worker has read the source, or may. One that failed is tried again anyway.
func reads(w Worker) bool { return alive(w) || w == Done || w == Retained }

// reading reports whether a worker that clones is there, and has not come to an end.
func reading(f Facts) bool {
	switch f.Worker {
	case Pending, Unplaceable, Unfetchable, Running:
		return f.Flow == Clone
	case NoWorker, Going, Stranded, CutOff, Done, Retained, Failed, Fatal:
	}
	return false
}

// byDriver reports whether the storage driver fills the claim.
func byDriver(f Facts) bool { return f.Flow == Provision || f.Flow == Enlarge || restores(f) }

// restores reports whether it fills it from a snapshot.
func restores(f Facts) bool { return f.Flow == Restore || f.Flow == EnlargeRestored }

// open reports whether copying has not begun, so an error of the source still matters. A driver that fills the claim itself reads
// the source only when it makes the claim.
func open(f Facts) bool {
	return absent(f) || f.Flow == Clone && f.Worker == NoWorker && f.Data == None
}
