package migration

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	StartTarget Action = "StartTarget" // with new keys for both sides
	Grant       Action = "Grant"       // enter the target among the holders of the disks, beside the source, and tell it so
	TellSource  Action = "TellSource"  // to send the guest
	CallOff     Action = "CallOff"     // tell the source to keep it
	HandOver    Action = "HandOver"    // the target runs the guest and is the instance's launcher
	StopSource  Action = "StopSource"  // a pod that has ended already
	StopTarget  Action = "StopTarget"
	DropLeft    Action = "DropLeft" // claims that were made for the target and are not needed, or were for the one before
	DropKeys    Action = "DropKeys"
	LetGo       Action = "LetGo" // of a migration that is being deleted
)

// Plan is a decision: what to do, in this order, and what to say. Without a state what was said last stays.
type Plan = decide.Plan[Action, state.MigrationReason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

// ending are the actions before a migration is reported as ended.
var ending = []Action{DropLeft, DropKeys}

// rules cover the whole life of a migration; first match wins. Reading order: its end, a guest that has left its source, requests
// to stop, errors, and the normal course.
var rules = []decide.Rule[Facts, Action, state.MigrationReason]{
	{"a target goes when it is said how its migration failed", // it is what that is said by
		func(f Facts) bool { return f.Over && f.Target.alive() && !f.Handed && f.Guest != Sent }, []Action{StopTarget}, ""},
	{"a migration that is over is let go",
		func(f Facts) bool {
			return f.Over && f.Cancelled && f.Shown && (f.Target == NoTarget || f.Handed || f.Guest == Sent)
		}, []Action{LetGo}, ""},
	{"a migration that is over stays as it is", func(f Facts) bool { return f.Over }, nil, ""},

	{"a guest that has moved waits for its claims to follow", // from the end of the migration on, everybody who reads them sees its data
		func(f Facts) bool { return f.Handed && f.Target == Runs && f.Guest != Here && f.Unnamed }, []Action{StopSource, DropLeft, DropKeys}, state.MigrationNaming},
	{"a guest that runs at the target has moved",
		func(f Facts) bool { return f.Handed && f.Target == Runs && f.Guest != Here }, []Action{StopSource, DropLeft, DropKeys}, state.MigrationDone},
	{"a source that has not been seen to end yet has its last words to say", // how long the guest stood still; a node that is lost says nothing
		func(f Facts) bool { return f.Handed && f.Target == Runs }, nil, state.MigrationHanding},
	{"the claims of a guest that has moved follow it, whatever became of it since",
		func(f Facts) bool { return f.Handed && f.Target.gone() && f.Ran && f.Unnamed && !f.Cancelled }, ending, state.MigrationNaming},
	{"a guest that ran at the target had moved, whatever became of it since",
		func(f Facts) bool { return f.Handed && f.Target.gone() && f.Ran }, ending, state.MigrationDone},
	{"a guest whose new launcher ended before it ran is lost",
		func(f Facts) bool { return f.Handed && f.Target.gone() }, ending, state.MigrationLost},
	{"a target that was told to run the guest is waited for", func(f Facts) bool { return f.Handed }, nil, state.MigrationHanding},
	{"a target that was told by the source gets it in writing", // and is the instance's launcher from then on
		func(f Facts) bool { return f.Guest == Sent && f.Target.alive() && f.Target != Ended }, []Action{HandOver}, state.MigrationHanding},
	{"a target that runs the guest was told by the source", // whose last words are lost
		func(f Facts) bool { return f.Target == Runs }, []Action{HandOver}, state.MigrationHanding},
	{"a guest that left for a target that ended is lost, and its disks are where it was last",
		func(f Facts) bool { return f.Guest == Sent && f.Target == Ended }, []Action{HandOver, DropLeft, DropKeys}, state.MigrationLost},
	{"a guest that left for a target that is gone is lost", func(f Facts) bool { return f.Guest == Sent }, ending, state.MigrationLost},

	{"a target that may have been told to run the guest is asked before it is given up",
		func(f Facts) bool {
			return f.Guest == Vanished && f.Word != Keeps && f.Told && f.Granted && f.Target == Placed && !f.Cancelled
		}, nil, state.MigrationHanding},
	{"a source that ended has no guest to send",
		func(f Facts) bool { return f.Guest == Vanished && f.Word != Keeps }, ending, state.MigrationNoGuest},

	{"a source that may be sending is told to keep the guest",
		func(f Facts) bool { return f.Cancelled && sending(f) && !f.ToldOff },
		[]Action{CallOff}, state.MigrationAborting},
	{"a source that may be sending is waited for",
		func(f Facts) bool { return f.Cancelled && sending(f) }, nil, state.MigrationAborting},
	{"a cancelled migration has ended", func(f Facts) bool { return f.Cancelled }, ending, state.MigrationAborted},

	{"a machine that does not run cannot be moved",
		func(f Facts) bool { return f.Word != Keeps && f.Guest == Unready && !sending(f) }, ending, state.MigrationNoGuest},
	{"a machine that cannot be moved stays",
		func(f Facts) bool { return f.Word != Keeps && f.Guest == Fixed && !sending(f) }, ending, state.MigrationRefused},
	{"a source that keeps its guest has ended the migration", func(f Facts) bool { return f.Word == Keeps }, ending, state.MigrationKept},
	{"a migration waits for one before it", func(f Facts) bool { return f.Guest == Queued && !f.Told }, nil, state.MigrationQueued},

	{"a source whose target is gone is told to keep the guest",
		func(f Facts) bool { return f.Told && f.Target.gone() && !f.ToldOff }, []Action{CallOff}, state.MigrationSending},
	{"a source that was told to send is waited for", func(f Facts) bool { return f.Told }, nil, state.MigrationSending},
	{"a target that ended before anything was sent has failed",
		func(f Facts) bool { return f.Target == Ended }, ending, state.MigrationTargetFailed},
	{"a target that is being deleted is waited out", func(f Facts) bool { return f.Target == Going }, nil, state.MigrationPreparing},
	{"a target is made", func(f Facts) bool { return f.Target == NoTarget }, []Action{StartTarget}, state.MigrationPlacing},
	{"a target that no node has had for too long is given up", // a node that has room much later would get a guest that is no longer meant to move
		func(f Facts) bool { return f.Late && (f.Target == Unplaceable || f.Target == Waiting) }, ending, state.MigrationUnplaced},
	{"a target no node will have says why", func(f Facts) bool { return f.Target == Unplaceable }, nil, state.MigrationUnplaceable},
	{"a target is being placed", func(f Facts) bool { return f.Target == Waiting }, nil, state.MigrationPlacing},
	{"a target that is placed may have the disks", func(f Facts) bool { return !f.Granted }, []Action{Grant}, state.MigrationPlaced},
	{"a target that listens is told to the source", func(f Facts) bool { return f.Target == Listens }, []Action{TellSource}, state.MigrationReady},
	{"a target gets ready", func(Facts) bool { return true }, nil, state.MigrationPreparing},
}

// sending reports whether the source may be sending, so only its own word or its end can say that its target is not needed.
func sending(f Facts) bool { return f.Told && f.Word != Keeps && f.Guest != Vanished }
