package machine

import "github.com/berth-vm/berth/internal/decide"

// CopyMode says how a volume of the machine's is copied.
type CopyMode int

// The modes.
const (
	OnWrite CopyMode = iota // its master is needed as long as the guest runs
	OnRead                  // its master is needed until the copy has all of it
	Whole                   // the same, and the guest does not start before
)

// Word is the launcher's report of a copy.
type Word int

// The words.
const (
	Silent Word = iota // nothing, so far
	Part               // the copy lies over its master, or is being made from it
	All                // the copy has all of its master, which is closed
)

// CopyFacts is everything the decision about the copy of a volume depends on. The launcher was told to start, because it is among
// the holders of every master.
type CopyFacts struct {
	Mode CopyMode
	Word Word
	// Holds: the launcher is among the holders of the master.
	Holds bool
}

// The reasons of a copy.
const (
	CopyOnMaster    = "OnMaster"    // what was not written is read from the master
	CopyFilling     = "Filling"     // so it is, and the rest is being brought in
	CopyCloning     = "Cloning"     // it is being made
	CopyIndependent = "Independent" // no use is made of the master
)

// GiveMaster takes the launcher out of the holders of a master.
const GiveMaster Action = "GiveMaster"

// CopyPlan is the action on the master of a copy, and the state of the copy to report.
type CopyPlan struct {
	Rule   string
	Do     []Action
	Reason string
}

// Copy finds the first rule that holds.
func Copy(f CopyFacts) CopyPlan {
	p := decide.First(copyRules, f)
	return CopyPlan{Rule: p.Rule, Do: p.Do, Reason: p.State}
}

var copyRules = []decide.Rule[CopyFacts, Action, string]{
	{"a copy on write needs its master", func(f CopyFacts) bool { return f.Mode == OnWrite }, nil, CopyOnMaster},
	{"a master that is not needed is given back", func(f CopyFacts) bool { return f.Word == All && f.Holds }, []Action{GiveMaster}, CopyIndependent},
	{"a master that was given back is not needed", func(f CopyFacts) bool { return !f.Holds && f.Word != Part }, nil, CopyIndependent},
	{"a clone is being made", func(f CopyFacts) bool { return f.Mode == Whole }, nil, CopyCloning},
	{"a copy on read is being filled", func(CopyFacts) bool { return true }, nil, CopyFilling},
}

func (m CopyMode) String() string { return decide.Name(m, "OnWrite", "OnRead", "Whole") }

func (w Word) String() string { return decide.Name(w, "silent", "part", "all") }
