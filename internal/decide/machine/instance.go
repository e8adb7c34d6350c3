package machine

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions on an instance.
const (
	StartConsumer Action = "StartConsumer" // a pod with all the claims and the machine's constraints
	StopConsumer  Action = "StopConsumer"
	StartLauncher Action = "StartLauncher" // it waits until it is released
	Nominate      Action = "Nominate"      // promise the launcher the consumer's node
	NoteServers   Action = "NoteServers"   // record on the launcher where it has logged in
	TakeDisks     Action = "TakeDisks"     // record the launcher as a holder of its disks; fails if another pod came first
	GiveDisks     Action = "GiveDisks"     // take it out again: its guest was never started
	Release       Action = "Release"       // tell the launcher that its disks are filled
	StopLauncher  Action = "StopLauncher"
	StopOthers    Action = "StopOthers" // launchers that do not have the guest
	Forget        Action = "Forget"     // nothing is left: let the instance go
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.MachineReason]

// Instance finds the first rule that holds.
func Instance(f Facts) Plan { return decide.First(instanceRules, f) }

// instanceRules is the whole life of an instance; first match wins. Reading order: its end, what went wrong, the
// launcher once there is one, the consumer before that.
var instanceRules = []decide.Rule[Facts, Action, state.MachineReason]{
	{"a leaving instance stops its guest first",
		func(f Facts) bool { return f.Leaving && f.Launcher.alive() }, []Action{StopLauncher}, state.Stopping},
	{"a leaving instance stops its consumer",
		func(f Facts) bool { return f.Leaving && f.Consumer.alive() }, []Action{StopConsumer}, state.Stopping},
	{"a leaving instance waits for its pods",
		func(f Facts) bool { return f.Leaving && (f.Launcher == Going || f.Consumer == Going) }, nil, state.Stopping},
	{"a leaving instance stops the launchers that its guest did not come to", // not before: its guest may be on the way there
		func(f Facts) bool { return f.Leaving && f.Others.alive() }, []Action{StopOthers}, state.Stopping},
	{"a leaving instance waits for them", // they are among the holders of its disks
		func(f Facts) bool { return f.Leaving && f.Others == Going }, nil, state.Stopping},
	{"a leaving instance without pods is let go",
		func(f Facts) bool { return f.Leaving }, []Action{Forget}, state.Stopping},

	{"a guest that ended well is done", func(f Facts) bool { return f.Launcher == Done }, nil, state.GuestEnded},
	{"a guest that ended badly has failed", func(f Facts) bool { return f.Launcher == Broken }, nil, state.GuestFailed},
	{"a guest that ended well is not started again in the same instance", // whatever became of its launcher's pod
		func(f Facts) bool { return f.Launcher == NoPod && f.Past == PastWell }, nil, state.GuestEnded},
	{"a guest that ended badly is not started again in the same instance",
		func(f Facts) bool { return f.Launcher == NoPod && f.Past == PastBadly }, nil, state.GuestFailed},
	{"a launcher that is being deleted is waited out",
		func(f Facts) bool { return f.Launcher == Going }, nil, state.LauncherLeaving},
	{"a guest that runs without a record of its disks gets one", // from before there were any
		func(f Facts) bool { return f.Launcher == Up && f.Disks == Ready && f.Access == Free }, []Action{TakeDisks}, state.GuestRunning},
	{"a running guest runs, whatever became of the rest",
		func(f Facts) bool { return f.Launcher == Up }, nil, state.GuestRunning},

	{"a guest that asks for what it cannot have is not started without it",
		func(f Facts) bool { return f.Unsupported && f.Launcher.alive() && !f.Released }, []Action{StopLauncher}, state.FieldsRefused},
	{"an instance that asks for what it cannot have needs no consumer",
		func(f Facts) bool { return f.Unsupported && f.Launcher == NoPod && f.Consumer.alive() }, []Action{StopConsumer}, state.FieldsRefused},
	{"an instance that asks for what it cannot have says so",
		func(f Facts) bool { return f.Unsupported && f.Launcher == NoPod }, nil, state.FieldsRefused},

	{"a machine whose disk failed keeps no room",
		func(f Facts) bool { return f.Disks == Failed && f.Launcher.alive() }, []Action{StopLauncher}, state.DiskFailed},
	{"a machine whose disk failed needs no consumer",
		func(f Facts) bool { return f.Disks == Failed && f.Consumer.alive() }, []Action{StopConsumer}, state.DiskFailed},
	{"a failed disk is said", func(f Facts) bool { return f.Disks == Failed }, nil, state.DiskFailed},

	{"a launcher in the queue is promised the consumer's node", // until it is gone: the scheduler forgets a promise when it tries in vain
		func(f Facts) bool {
			return f.Launcher.queued() && f.Consumer != NoPod && !f.Consumer.queued() && !f.Nominated
		},
		[]Action{Nominate}, state.HandingOver},
	{"the consumer ends when the launcher has its room",
		func(f Facts) bool { return f.Launcher.alive() && f.Consumer.alive() }, []Action{StopConsumer}, state.HandingOver},
	{"a launcher no node will have says why",
		func(f Facts) bool { return f.Launcher == Unplaceable && f.Consumer == NoPod }, nil, state.LauncherUnplaceable},
	{"a launcher in the queue takes no disks yet",
		func(f Facts) bool { return f.Launcher.queued() && f.Disks == Ready && !f.Released }, nil, state.LauncherStarting},
	{"a launcher that cannot have all of its disks keeps none from others",
		func(f Facts) bool { return f.Launcher.alive() && f.Disks == Ready && !f.Released && f.Access == Partly },
		[]Action{GiveDisks}, state.DiskInUse},
	{"a launcher waits for disks that others have",
		func(f Facts) bool { return f.Launcher.alive() && f.Disks == Ready && !f.Released && f.Access == Taken }, nil, state.DiskInUse},
	{"where a launcher has logged in is recorded, and says which disks it wants",
		func(f Facts) bool {
			return f.Launcher.alive() && f.Disks == Ready && !f.Released && f.Access == LoggedIn
		},
		[]Action{NoteServers}, state.LauncherStarting},
	{"a launcher has no disk at a server before it has logged in there",
		func(f Facts) bool { return f.Launcher.alive() && f.Disks == Ready && !f.Released && f.Access == LogsIn },
		nil, state.LauncherStarting},
	{"filled disks are taken and release the launcher",
		func(f Facts) bool { return f.Launcher.alive() && f.Disks == Ready && !f.Released },
		[]Action{TakeDisks, Release}, state.LauncherStarting},
	{"a launcher that was told to go without a record gets one", // from before there were any
		func(f Facts) bool {
			return f.Launcher.alive() && !f.Launcher.queued() && f.Disks == Ready && f.Released && f.Access == Free
		},
		[]Action{TakeDisks}, state.LauncherStarting},
	{"a launcher that somebody else told to go does not get another's disks",
		func(f Facts) bool { return f.Launcher.alive() && f.Disks == Ready && f.Released && f.Access.denied() },
		[]Action{StopLauncher}, state.DiskInUse},
	{"a released launcher starts the guest",
		func(f Facts) bool { return f.Launcher.alive() && f.Released }, nil, state.LauncherStarting},
	{"a launcher waits for disks whose filling failed and is tried again",
		func(f Facts) bool { return f.Launcher.alive() && f.Disks == Failing }, nil, state.DiskRetrying},
	{"a launcher waits for its disks",
		func(f Facts) bool { return f.Launcher.alive() }, nil, state.DisksFilling},

	{"a missing disk is waited for", func(f Facts) bool { return f.Disks == Missing }, nil, state.DiskMissing},
	{"held disks get one consumer",
		func(f Facts) bool { return f.Disks == Held && f.Consumer == NoPod }, []Action{StartConsumer}, state.ConsumerPlacing},
	{"a consumer that ended without binding is replaced",
		func(f Facts) bool { return f.Disks == Held && (f.Consumer == Done || f.Consumer == Broken) },
		[]Action{StopConsumer}, state.ConsumerPlacing},
	{"a consumer no node will have says why",
		func(f Facts) bool { return f.Disks == Held && f.Consumer == Unplaceable }, nil, state.ConsumerUnplaceable},
	{"a consumer is placed", func(f Facts) bool { return f.Disks == Held }, nil, state.ConsumerPlacing},

	{"a consumer hands its room to the launcher",
		func(f Facts) bool { return f.Consumer.alive() && !f.Consumer.queued() },
		[]Action{StartLauncher}, state.HandingOver},
	{"a consumer whose claims are bound is about to be placed",
		func(f Facts) bool { return f.Consumer == Waiting }, nil, state.ConsumerPlacing},
	{"a consumer whose claims are bound may be about to be placed, although no node would have it before", // the scheduler binds the claims first, and the pod says so last
		func(f Facts) bool { return f.Consumer == Unplaceable && (f.Disks == Filling || f.Disks == Failing) }, nil, state.DisksFilling},
	{"a consumer that somebody else forestalled ends",
		func(f Facts) bool { return f.Consumer.alive() }, []Action{StopConsumer}, state.DisksFilling},
	{"no launcher is started for disks that others have",
		func(f Facts) bool { return f.Disks == Ready && f.Access.denied() }, nil, state.DiskInUse},
	{"filled disks start the launcher",
		func(f Facts) bool { return f.Disks == Ready }, []Action{StartLauncher}, state.LauncherStarting},
	{"a launcher is the first consumer of claims that only wait for one",
		func(f Facts) bool { return f.Disks == Unbound }, []Action{StartLauncher}, state.DisksFilling},
	{"disks whose filling failed and is tried again are waited for", func(f Facts) bool { return f.Disks == Failing }, nil, state.DiskRetrying},
	{"disks being filled are waited for", func(Facts) bool { return true }, nil, state.DisksFilling},
}
