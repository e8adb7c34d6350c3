package machine

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"

	"github.com/berth-vm/berth/internal/decide"
)

// Instances is the state of the machine's instance.
type Instances int

// The situations of the instance.
const (
	NoInstance Instances = iota
	Living               // made, and not ended
	EndedWell            // the guest powered off
	EndedBadly           // it crashed, or could not be started
	Departing            // it is being deleted
	Stranger             // there is one of that name that is not this machine's
)

// Request is the last request of a user that is not carried out yet.
type Request int

// The requests. Restart is a stop followed by a start.
const (
	NoRequest Request = iota
	StartAsked
	StopAsked
	RestartAsked
	StartPausedAsked // its guest starts paused and stays so until a user resumes it
)

// RunFacts is everything the decision about a machine depends on.
type RunFacts struct {
	Leaving  bool
	Strategy kubevirt.RunStrategy
	Instance Instances
	Request  Request
	// Served: the strategy has had the run it begins with.
	Served bool
	// RetryDue: the pause after a failed start is over.
	RetryDue bool
	// Means: what it would take to start it.
	Means Means
	// Disks of a machine without an instance: Failed, Failing, or anything else.
	Disks Disks
}

// The actions on a machine.
const (
	CreateDisks    Action = "CreateDisks"    // the DataVolumes of its templates
	CreateInstance Action = "CreateInstance" //
	DeleteInstance Action = "DeleteInstance" //
	AskStart       Action = "AskStart"       // as a person would
	TakeRequest    Action = "TakeRequest"    // the start that was asked for has been made
	SetAlways      Action = "SetAlways"      // the strategy of a halted machine becomes Always
)

// Run finds the first rule that holds.
func Run(f RunFacts) Plan { return decide.First(machineRules, f) }

// starts reports whether a start was asked for.
func (f RunFacts) starts() bool { return f.Request == StartAsked || f.Request == StartPausedAsked }

// again reports whether the strategy wants another instance after the last one ended.
func (f RunFacts) again() bool {
	switch f.Strategy {
	case kubevirt.RunAlways:
		return true
	case kubevirt.RunRerunOnFailure:
		return f.Instance == EndedBadly
	case kubevirt.RunManual, kubevirt.RunHalted, kubevirt.RunOnce:
	}
	return false
}

// first reports whether the strategy wants an instance although no user asked for a start.
func (f RunFacts) first() bool {
	switch f.Strategy {
	case kubevirt.RunAlways:
		return true
	case kubevirt.RunRerunOnFailure, kubevirt.RunOnce:
		return !f.Served // its instance may have been stopped or deleted since
	case kubevirt.RunManual, kubevirt.RunHalted:
	}
	return false
}

// machineRules decide when a machine runs; first match wins.
var machineRules = []decide.Rule[RunFacts, Action, state.MachineReason]{
	{"what a leaving machine owns is left to the garbage collector",
		func(f RunFacts) bool { return f.Leaving }, nil, state.Terminating},

	{"an instance of somebody else is left alone",
		func(f RunFacts) bool { return f.Instance == Stranger }, nil, state.InstanceInTheWay},
	{"a departing instance is waited out",
		func(f RunFacts) bool { return f.Instance == Departing }, nil, state.Stopping},

	{"a stop that was asked for ends the instance",
		func(f RunFacts) bool {
			return (f.Request == StopAsked || f.Request == RestartAsked) && f.Instance != NoInstance
		},
		[]Action{DeleteInstance}, state.Stopping},
	{"a halted machine is started by changing its strategy alone",
		func(f RunFacts) bool {
			return f.Strategy == kubevirt.RunHalted && f.Instance == NoInstance && f.Request == StartAsked
		},
		[]Action{CreateDisks, TakeRequest}, state.Halted},
	{"a halted machine that is to start paused is told how by the request, which stays until it has an instance",
		func(f RunFacts) bool {
			return f.Strategy == kubevirt.RunHalted && f.Instance == NoInstance && f.Request == StartPausedAsked
		},
		[]Action{SetAlways}, state.Provisioning},
	{"a halted machine does not run",
		func(f RunFacts) bool { return f.Strategy == kubevirt.RunHalted && f.Instance != NoInstance },
		[]Action{DeleteInstance}, state.Stopping},

	{"a start of a machine that runs is done",
		func(f RunFacts) bool { return f.Instance == Living && f.starts() },
		[]Action{CreateDisks, TakeRequest}, state.AsInstance},
	{"a living instance is the machine",
		func(f RunFacts) bool { return f.Instance == Living }, []Action{CreateDisks}, state.AsInstance},
	{"another run of a machine that ran already is asked for before the last one is forgotten",
		func(f RunFacts) bool {
			return f.Instance == EndedBadly && f.Strategy == kubevirt.RunRerunOnFailure && f.Request == NoRequest && f.RetryDue
		},
		[]Action{AskStart}, state.Restarting},
	{"an ended instance that is wanted again is cleared away",
		func(f RunFacts) bool {
			return f.Instance != NoInstance && (f.starts() || f.again() && (f.RetryDue || f.Instance == EndedWell))
		},
		[]Action{DeleteInstance}, state.Restarting},
	{"an instance that failed to start is tried again after a pause",
		func(f RunFacts) bool { return f.Instance == EndedBadly && f.again() }, nil, state.CrashLoop},
	{"an ended instance stays ended", func(f RunFacts) bool { return f.Instance != NoInstance }, nil, state.AsInstance},

	{"a machine that is being restored is left alone",
		func(f RunFacts) bool { return f.Means == Restoring }, nil, state.BeingRestored},
	{"a claim that is not the machine's is left alone",
		func(f RunFacts) bool { return f.Means == ClaimTaken }, nil, state.ClaimTaken},
	{"a claim is not made by guessing", func(f RunFacts) bool { return f.Means == ClaimVague }, nil, state.ClaimVague},
	{"a machine whose instance type is not there is not started",
		func(f RunFacts) bool { return f.Means == TypeMissing }, nil, state.TypeMissing},
	{"a machine whose preference is not there is not started",
		func(f RunFacts) bool { return f.Means == PreferenceMissing }, nil, state.PreferenceMissing},
	{"a machine that its instance type or preference does not go with is not started",
		func(f RunFacts) bool { return f.Means == KindUnfit }, nil, state.KindUnfit},
	{"a machine is not started without what it asks for",
		func(f RunFacts) bool { return f.Means == Unsupported }, nil, state.FieldsRefused},
	{"a machine is not started before its containers have made its volumes",
		func(f RunFacts) bool { return f.Means == VolumeAwaited }, nil, state.VolumeMaking},

	{"a start that was asked for makes an instance",
		func(f RunFacts) bool { return f.starts() },
		[]Action{CreateDisks, CreateInstance, TakeRequest}, state.Provisioning},
	{"a machine that is to run gets an instance",
		func(f RunFacts) bool { return f.first() }, []Action{CreateDisks, CreateInstance}, state.Provisioning},
	{"a machine that is not to run says that a disk will never be filled",
		func(f RunFacts) bool { return f.Disks == Failed }, []Action{CreateDisks}, state.DiskFailed},
	{"a machine that is not to run says that a disk could not be filled so far",
		func(f RunFacts) bool { return f.Disks == Failing }, []Action{CreateDisks}, state.DiskRetrying},
	{"a machine that is not to run has its disks",
		func(RunFacts) bool { return true }, []Action{CreateDisks}, state.Halted},
}
