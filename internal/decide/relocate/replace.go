// Package relocate decides how a claim gets the volume that the data of its disk moved to. The volume was made for another claim, the
// replacement, which the launcher at the new node mounts. While that launcher runs, a second PersistentVolume of the same volume, the
// alias, is bound to the claim under its own name; when it has ended, the replacement goes and the alias is the only one. If nothing uses
// the volume, the claim gets it directly. Decide is a pure function of a few facts: testdata/decisions.txt is the whole of it.
//
// It does not know Kubernetes objects, clients or the time.
package relocate

import "github.com/berth-vm/berth/internal/decide"

// Claim is the claim whose data moved.
type Claim int

// The situations of the claim.
const (
	Old          Claim = iota // it holds a volume that the data moved away from, or can never hold the right one
	Leaving                   // being deleted
	Absent                    // there is none
	Open                      // it has no volume
	Awaiting                  // it names the alias and is not bound to it
	Stranger                  // a user made it with a volume of its own
	Bound                     // it has the volume itself
	Aliased                   // it has the alias
	AliasLeaving              // it has the alias and is being deleted
)

// Volume is the PersistentVolume that was made for the replacement.
type Volume int

// The situations of that volume.
const (
	Gone  Volume = iota // it is gone, and its record with it
	Lent                // it belongs to the replacement, or to a claim that is gone
	Given               // it belongs to the claim
)

// Alias is the second PersistentVolume.
type Alias int

// The situations of the alias.
const (
	NoAlias  Alias = iota
	Reserved       // for the claim
	Stale          // for a claim that is gone
)

// Use says which pods use the volume through the replacement.
type Use int

// The uses.
const (
	Free Use = iota // nothing
	Held            // something that ends soon: it is waited for
	Runs            // a launcher that may run for months
)

// Facts is everything a decision depends on.
type Facts struct {
	Claim  Claim
	Volume Volume
	Alias  Alias
	Use    Use
	// Replacement: the claim that the volume was made for is there.
	Replacement bool
	// Earlier: volumes that had the data before are there.
	Earlier bool
	// Orphaned: the claim's owner or namespace is being deleted or gone, so the claim is not made again.
	Orphaned bool
}

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	Note            Action = "Note"            // what the claim is like, on the volume
	DropClaim       Action = "DropClaim"       // and with it the volume that it had, as its reclaim policy says
	FreeClaim       Action = "FreeClaim"       // remove our finalizer from it
	MakeClaim       Action = "MakeClaim"       // as it was noted, for the volume itself
	MakeNamed       Action = "MakeNamed"       // as it was noted, for the alias, with our finalizer
	MakeAlias       Action = "MakeAlias"       // reserved for the claim; both PersistentVolumes have the reclaim policy Retain
	DropAlias       Action = "DropAlias"       // the object, not the data
	Give            Action = "Give"            // the volume to the claim
	DropReplacement Action = "DropReplacement" // which has no volume any more, or whose volume is kept
	DropVolume      Action = "DropVolume"      // the first PersistentVolume: the object, not the data
	DropEarlier     Action = "DropEarlier"     // volumes of moves before the last, with their data
	Finish          Action = "Finish"          // the alias gets the reclaim policy of its volume
	Abandon         Action = "Abandon"         // the volume goes as its reclaim policy says
	Clear           Action = "Clear"           // the record
)

// Plan is a decision: the actions, in this order. Current: the claim has the present data. Done: no object of the move is left.
type Plan struct {
	Rule    string
	Do      []Action
	Current bool
	Done    bool
}

// Decide finds the first rule that holds.
func Decide(f Facts) Plan {
	p := decide.First(rules, f)
	return Plan{Rule: p.Rule, Do: p.Do, Done: p.State, Current: f.Volume == Gone || f.Claim == Bound || f.Claim == Aliased}
}

func (f Facts) aliased() bool { return f.Claim == Aliased || f.Claim == AliasLeaving }

// rules is the whole table; first match wins. The last column: no object of the move is left.
var rules = []decide.Rule[Facts, Action, bool]{
	{"an alias whose first volume is gone is the volume", func(f Facts) bool { return f.Volume == Gone && f.Alias != NoAlias }, []Action{Finish, FreeClaim}, false},
	{"a claim of no move needs no finalizer of ours", func(f Facts) bool { return f.Volume == Gone }, []Action{FreeClaim}, true},

	{"a claim that has the volume needs no replacement", func(f Facts) bool { return f.Claim == Bound && (f.Replacement || f.Earlier) },
		[]Action{DropReplacement, DropEarlier}, false}, // the record goes last: those of earlier volumes would count then
	{"a claim that has the volume needs no record", func(f Facts) bool { return f.Claim == Bound }, []Action{Clear}, true},
	{"volumes from before go once the claim has the data", func(f Facts) bool { return f.aliased() && f.Earlier }, []Action{DropEarlier}, false},
	{"a launcher keeps the claim that it was started with", func(f Facts) bool { return f.aliased() && f.Use != Free }, nil, false},
	{"a replacement that nothing uses goes", func(f Facts) bool { return f.aliased() && f.Replacement }, []Action{DropReplacement}, false},
	{"the first volume of two goes", func(f Facts) bool { return f.aliased() }, []Action{DropVolume}, false},

	{"a volume that ends soon to be used is waited for", func(f Facts) bool { return f.Use == Held }, nil, false},
	{"a claim that is being deleted is waited out", func(f Facts) bool { return f.Claim == Leaving }, []Action{FreeClaim}, false},
	{"a claim of somebody else is in the way", func(f Facts) bool { return f.Claim == Stranger }, nil, false},
	{"a claim that the data moved away from is made again", func(f Facts) bool { return f.Claim == Old }, []Action{Note, DropClaim}, false},
	{"an alias of a claim that is gone goes", func(f Facts) bool { return f.Alias == Stale }, []Action{DropAlias}, false},
	{"a volume that nobody will claim goes", func(f Facts) bool { return f.Claim == Absent && f.Orphaned && f.Use == Free && !f.Replacement }, []Action{Abandon}, true},
	{"a claim whose owner goes is not made again", func(f Facts) bool { return f.Claim == Absent && f.Orphaned }, nil, false},
	{"a claim that is gone is made beside a launcher", func(f Facts) bool { return f.Claim == Absent && f.Use == Runs }, []Action{MakeNamed}, false},
	{"a claim that is gone is made", func(f Facts) bool { return f.Claim == Absent }, []Action{MakeClaim}, false},
	{"a claim that is given the volume itself is bound soon", func(f Facts) bool { return f.Claim == Open && f.Volume == Given }, nil, false},
	{"a claim without a volume gets an alias beside a launcher", func(f Facts) bool { return f.Alias == NoAlias && (f.Claim == Awaiting || f.Use == Runs) },
		[]Action{MakeAlias}, false},
	{"a claim with an alias is bound soon", func(f Facts) bool { return f.Alias == Reserved }, nil, false},
	{"a claim without a volume is given it", func(Facts) bool { return true }, []Action{Give}, false},
}

func (c Claim) String() string {
	return [...]string{"Old", "Leaving", "Absent", "Open", "Awaiting", "Stranger", "Bound", "Aliased", "AliasLeaving"}[c]
}

func (v Volume) String() string { return [...]string{"Gone", "Lent", "Given"}[v] }

func (a Alias) String() string { return [...]string{"NoAlias", "Reserved", "Stale"}[a] }

func (u Use) String() string { return [...]string{"Free", "Held", "Runs"}[u] }
