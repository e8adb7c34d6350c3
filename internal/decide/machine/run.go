package machine

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

// Instances is what has become of the machine's instance.
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

// Request is what a person last asked of the machine and has not got yet.
type Request int

// The requests. Restart is a stop followed by a start.
const (
	NoRequest Request = iota
	StartAsked
	StopAsked
	RestartAsked
)

// RunFacts is everything the decision about a machine depends on.
type RunFacts struct {
	Leaving  bool
	Strategy kubevirt.RunStrategy
	Instance Instances
	Request  Request
	// RetryDue: the pause after a failed start is over.
	RetryDue bool
}

// The actions on a machine.
const (
	CreateDisks    Action = "CreateDisks"    // the DataVolumes of its templates
	CreateInstance Action = "CreateInstance" //
	DeleteInstance Action = "DeleteInstance" //
	TakeRequest    Action = "TakeRequest"    // the oldest request is carried out
)

type machineRule struct {
	name string
	when func(RunFacts) bool
	do   []Action
	say  state.MachineReason
}

// Run finds the first rule that holds.
func Run(f RunFacts) Plan {
	for _, r := range machineRules {
		if r.when(f) {
			return Plan{Rule: r.name, Do: r.do, State: r.say}
		}
	}
	return Plan{}
}

// again: the strategy wants another instance after the last one ended.
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

// first: the strategy wants an instance although nobody asked for one.
func (f RunFacts) first() bool {
	switch f.Strategy {
	case kubevirt.RunAlways, kubevirt.RunRerunOnFailure, kubevirt.RunOnce:
		return true // an instance that ended stays until somebody wants another, so there was none yet
	case kubevirt.RunManual, kubevirt.RunHalted:
	}
	return false
}

// machineRules is when a machine runs; first match wins.
var machineRules = []machineRule{
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
		[]Action{DeleteInstance, TakeRequest}, state.Stopping},
	{"a stop of a machine that does not run is done",
		func(f RunFacts) bool { return f.Request == StopAsked }, []Action{TakeRequest}, state.Halted},
	{"a halted machine does not run",
		func(f RunFacts) bool { return f.Strategy == kubevirt.RunHalted && f.Instance != NoInstance },
		[]Action{DeleteInstance}, state.Stopping},

	{"a living instance is the machine",
		func(f RunFacts) bool { return f.Instance == Living }, []Action{CreateDisks}, state.AsInstance},
	{"an ended instance that is wanted again is cleared away",
		func(f RunFacts) bool {
			return f.Instance != NoInstance && (f.again() || f.Request == StartAsked) && (f.RetryDue || f.Instance == EndedWell)
		},
		[]Action{DeleteInstance}, state.Restarting},
	{"an instance that failed to start is tried again after a pause",
		func(f RunFacts) bool { return f.Instance == EndedBadly && f.again() }, nil, state.CrashLoop},
	{"an ended instance stays ended", func(f RunFacts) bool { return f.Instance != NoInstance }, nil, state.AsInstance},

	{"a start that was asked for makes an instance",
		func(f RunFacts) bool { return f.Request == StartAsked || f.Request == RestartAsked },
		[]Action{CreateDisks, CreateInstance, TakeRequest}, state.Provisioning},
	{"a machine that is to run gets an instance",
		func(f RunFacts) bool { return f.first() }, []Action{CreateDisks, CreateInstance}, state.Provisioning},
	{"a machine that is not to run has its disks",
		func(RunFacts) bool { return true }, []Action{CreateDisks}, state.Halted},
}
