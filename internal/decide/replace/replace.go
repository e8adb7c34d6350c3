// Package replace decides how a claim gets the volume that the data of its disk moved to, when no pod has either any more. The volume
// was made for another claim, the replacement; the claim is deleted, made again under its name and given the volume, as populated
// claims are. Decide is a pure function of a few facts: testdata/decisions.txt is the whole of it.
//
// It does not know Kubernetes objects, clients or the time.
package replace

// Claim is the claim whose data moved.
type Claim int

// The situations of the claim.
const (
	Old      Claim = iota // it is the one that the data moved away from
	Leaving               // being deleted
	Absent                // there is none
	Open                  // it has no volume
	Stranger              // it has another volume than the one that it had
	Bound                 // it has the volume that the data moved to
)

// Volume is whom the volume with the data is given to.
type Volume int

// The holders of the volume.
const (
	Lent  Volume = iota // to the replacement, or to a claim that is gone
	Given               // to the claim
)

// Facts is everything a decision depends on.
type Facts struct {
	Claim  Claim
	Volume Volume
	// Used: a launcher may have the volume.
	Used bool
	// Replacement: the claim that the volume was made for is there.
	Replacement bool
	// Earlier: volumes that had the data before are there.
	Earlier bool
}

// Action is something to do. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	Note            Action = "Note"            // what the claim is like, on the volume
	DropClaim       Action = "DropClaim"       // and with it the volume that it had, as its reclaim policy says
	MakeClaim       Action = "MakeClaim"       // as it was noted
	Give            Action = "Give"            // the volume to the claim
	DropReplacement Action = "DropReplacement" // which has no volume any more
	DropEarlier     Action = "DropEarlier"     // replacements of moves before the last
	Clear           Action = "Clear"           // the record
)

// Plan is a decision: what to do, in this order. Done: the claim is the machine's disk again.
type Plan struct {
	Rule string
	Do   []Action
	Done bool
}

type rule struct {
	name string
	when func(Facts) bool
	do   []Action
	done bool
}

// Decide finds the first rule that holds.
func Decide(f Facts) Plan {
	for _, r := range rules {
		if r.when(f) {
			return Plan{Rule: r.name, Do: r.do, Done: r.done}
		}
	}
	return Plan{}
}

var rules = []rule{
	{"a claim that has the volume needs no replacement", func(f Facts) bool { return f.Claim == Bound && (f.Replacement || f.Earlier) },
		[]Action{DropReplacement, DropEarlier}, false}, // the record goes last: those of earlier volumes would count then
	{"a claim that has the volume needs no record", func(f Facts) bool { return f.Claim == Bound }, []Action{Clear}, true},
	{"a volume that a launcher has stays as it is", func(f Facts) bool { return f.Used }, nil, false},
	{"a claim that is being deleted is waited out", func(f Facts) bool { return f.Claim == Leaving }, nil, false},
	{"a claim of somebody else is in the way", func(f Facts) bool { return f.Claim == Stranger }, nil, false},
	{"a claim that the data moved away from is made again", func(f Facts) bool { return f.Claim == Old }, []Action{Note, DropClaim}, false},
	{"a claim that is gone is made", func(f Facts) bool { return f.Claim == Absent }, []Action{MakeClaim}, false},
	{"a claim without a volume is given it", func(f Facts) bool { return f.Volume == Lent }, []Action{Give}, false},
	{"a claim that was given the volume is bound soon", func(Facts) bool { return true }, nil, false},
}

func (c Claim) String() string {
	return [...]string{"Old", "Leaving", "Absent", "Open", "Stranger", "Bound"}[c]
}

func (v Volume) String() string { return [...]string{"Lent", "Given"}[v] }
