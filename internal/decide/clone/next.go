package clone

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/decide/volume"
)

// Origin is the state of the clone's source.
type Origin int

// The situations of an origin.
const (
	Found      Origin = iota
	Unresolved        // the DataSource that is named leads to nothing
	Forbidden         // the user may not read it
	Missing           // it does not exist
	Unfilled          // nothing proves that its data is complete
)

// Claim is the claim that the clone is made in.
type Claim int

// The situations of a claim.
const (
	Unmade     Claim = iota // there is none yet
	Vague                   // there is none yet, and what was asked for cannot be completed
	Plain                   // it was made without a data source, for a worker to fill
	Copied                  // a worker copies to it
	Unserved                // a worker copies to it that reads from a server which is gone
	Superseded              // a worker copies to it that reads from a server which is gone, and another is ready in its stead
	ByDriver                // its driver is to fill it
	Delivered               // its driver has filled it
	Settled                 // what is on it is recorded
)

// Spot says on which nodes the driver of a claim can fill it.
type Spot int

// The spots.
const (
	Anywhere  Spot = iota
	Elsewhere      // not where the claim is wanted
	Beside         // only beside the source, and the claim is not placed there yet
)

// Aid is the state of a helper object of a clone.
type Aid int

// The states of a helper object.
const (
	None Aid = iota
	Coming
	There
)

// Facts is everything the next step depends on.
type Facts struct {
	Origin Origin
	Claim  Claim
	// FromSnapshot: the driver is to fill the claim from a snapshot; Grown: with a disk that is too small for the claim.
	FromSnapshot, Grown bool
	// Lost: what the driver is to clone is gone, or is another by now.
	Lost bool
	Spot Spot

	// Way is the strategy that was chosen.
	Way Strategy
	// OfSnapshot: the origin is a snapshot and not a claim.
	OfSnapshot bool
	Busy       bool // a pod writes to the origin
	// Freezes: a snapshot of the origin can be taken, to be read in its stead.
	Freezes bool
	Taken   Aid // the snapshot of the origin
	// Restored is the claim that a snapshot is restored to, to be read from.
	Restored Aid
	Served   bool // a worker serves the origin to another node
}

// Step is the next step of a clone.
type Step struct {
	Rule string // what was decided, for logs and tests
	// Flow is how the claim gets its data; Origin is the step that comes before that.
	Flow   volume.Flow
	Origin volume.Origin
	// Via: what is read is not the origin itself but what a snapshot was restored to.
	Via bool
}

// Next returns the next step of a clone. The first rule that holds counts.
func Next(f Facts) Step {
	p := decide.First(rules, f)
	return Step{Rule: p.Rule, Origin: p.State, Flow: flow(f), Via: copies(f) && via(f) || f.Claim == Unserved && f.Restored != None}
}

var rules = []decide.Rule[Facts, decide.Nothing, volume.Origin]{
	{"a reference that leads nowhere is waited for", func(f Facts) bool { return f.Origin == Unresolved }, nil, volume.Missing},
	{"what its driver has filled needs no origin", func(f Facts) bool { return f.Claim == Delivered }, nil, volume.Usable},
	{"what its driver cannot clone any more is made again", func(f Facts) bool { return f.Claim == ByDriver && f.Lost }, nil, volume.Misplaced},
	{"what its driver cannot fill where it is wanted is made again",
		func(f Facts) bool { return f.Claim == ByDriver && f.Spot == Elsewhere }, nil, volume.Misplaced},
	{"what its driver can fill only beside the source is placed there",
		func(f Facts) bool { return f.Claim == ByDriver && f.Spot == Beside }, nil, volume.Beside},
	{"a driver is let fill its claim", func(f Facts) bool { return f.Claim == ByDriver }, nil, volume.Usable},
	{"what is settled needs no origin", func(f Facts) bool { return f.Claim == Settled }, nil, volume.Usable},

	{"a right is needed", func(f Facts) bool { return f.Origin == Forbidden }, nil, volume.Forbidden},
	{"an origin that does not exist is waited for", func(f Facts) bool { return f.Origin == Missing }, nil, volume.Missing},
	{"an origin that is not complete is waited for", func(f Facts) bool { return f.Origin == Unfilled }, nil, volume.Unfilled},
	{"a claim that cannot be completed says so itself", func(f Facts) bool { return f.Claim == Vague }, nil, volume.Usable},
	{"what somebody writes to while it is copied is copied again", func(f Facts) bool { return copied(f) && f.Busy }, nil, volume.Busy},
	{"a server that a worker reads from is made again", func(f Facts) bool { return f.Claim == Unserved }, nil, volume.Unready},
	{"a worker that reads from a server of before is made again", func(f Facts) bool { return f.Claim == Superseded }, nil, volume.Replaced},
	{"what a worker copies is left to it", func(f Facts) bool { return f.Claim == Copied }, nil, volume.Usable},

	{"what nobody can clone is refused", func(f Facts) bool { return f.Way == Impossible }, nil, volume.Unfit},
	{"a driver clones the origin as it is", func(f Facts) bool { return f.Way == CSIClone }, nil, volume.Usable},
	{"a snapshot is taken before it is restored",
		func(f Facts) bool { return f.Way == Snapshot && !f.OfSnapshot && f.Taken != There }, nil, volume.Preparing},
	{"a driver restores a snapshot", func(f Facts) bool { return f.Way == Snapshot }, nil, volume.Usable},

	{"an origin in use is waited for, if no snapshot can be taken", func(f Facts) bool { return f.Busy && !via(f) }, nil, volume.Busy},
	{"a snapshot is taken of an origin in use",
		func(f Facts) bool { return via(f) && !f.OfSnapshot && f.Restored == None && f.Taken != There }, nil, volume.Preparing},
	{"a claim comes before what it is copied from", func(f Facts) bool { return f.Claim == Unmade }, nil, volume.Usable},
	{"a snapshot is restored before it is read", func(f Facts) bool { return via(f) && f.Restored != There }, nil, volume.Restoring},
	{"an origin on another node is served before it is read", func(f Facts) bool { return f.Way == Stream && !f.Served }, nil, volume.Unready},
	{"an origin is read", func(Facts) bool { return true }, nil, volume.Usable},
}

// via reports whether a snapshot is read and not the origin itself. A clone that was begun from a snapshot continues with it, even
// if the pod that used the origin ends.
func via(f Facts) bool {
	return f.OfSnapshot || f.Freezes && (f.Busy || f.Taken != None || f.Restored != None)
}

// copied reports whether a worker copies to the claim, or has.
func copied(f Facts) bool { return f.Claim == Copied || f.Claim == Unserved || f.Claim == Superseded }

// copies reports whether workers copy the data.
func copies(f Facts) bool {
	return (f.Way == Copy || f.Way == Stream) && f.Origin == Found && (f.Claim == Unmade || f.Claim == Plain)
}

// flow returns how the claim gets its data.
func flow(f Facts) volume.Flow {
	made := f.Claim == ByDriver || f.Claim == Delivered
	chosen := f.Origin == Found && (f.Claim == Unmade || f.Claim == Plain)
	switch {
	case f.Origin == Unresolved:
		return volume.Clone
	case made && f.Grown && f.FromSnapshot:
		return volume.EnlargeRestored
	case made && f.Grown:
		return volume.Enlarge
	case made && f.FromSnapshot, chosen && f.Way == Snapshot:
		return volume.Restore
	case made, chosen && f.Way == CSIClone:
		return volume.Provision
	}
	return volume.Clone
}
