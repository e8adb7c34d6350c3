// Package plan decides what happens to each volume of a cluster whose data side was CDI, when Berth takes that over. It is pure:
// it does not know how a cluster is read nor how anything is done there.
//
// Three things hold whatever is found: what CDI has filled is not filled again, what CDI is writing is not written by another
// program, and no claim is deleted.
package plan

// Phase is the state of a volume according to CDI, reduced to the cases that matter here.
type Phase int

// The phases.
const (
	Waiting   Phase = iota // nothing was written: it waits for a claim, a consumer or its source
	Moving                 // CDI writes, or may at any moment
	Receiving              // a server of CDI waits for an upload
	Paused                 // an import in stages waits for the next of them
	Succeeded
	Failed
	Unclear // CDI says something that we do not know
)

// Claim is the volume's claim.
type Claim int

// The situations of a claim.
const (
	Absent Claim = iota
	Unbound
	Bound
	Lost
	Foreign // one of its name that is another's
)

// Facts is everything the decision depends on.
type Facts struct {
	Phase    Phase
	Claim    Claim
	Leaving  bool // it is being deleted
	Recorded bool // the claim says that its data is complete, in the words that Berth reads
	Foreign  bool // its source is one that Berth has not: vddk, imageio, checkpoints, an image stream
	Direct   bool // CDI writes to the claim itself, and not to another that gives its volume to it
	// Elsewhere: it is cloned from another namespace. CDI allowed that with a token that only CDI can read.
	Elsewhere bool
}

// Verdict says what happens to a volume.
type Verdict string

// The verdicts.
const (
	Taken    Verdict = "taken"    // as it is
	Finished Verdict = "finished" // CDI goes on until it is done; then it is looked at again
	Refused  Verdict = "refused"  // nothing is taken over as long as there is one of these
)

// Action is a change to a volume that is taken over, after CDI has stopped and before Berth starts. Each can be repeated.
type Action string

// The actions.
const (
	Record Action = "Record" // on the claim, that its data is complete
	Allow  Action = "Allow"  // mark the claim as empty and free to be filled for this volume
	Stop   Action = "Stop"   // CDI's server that waits for an upload
)

// Plan is a decision, with what to tell a person.
type Plan struct {
	Verdict Verdict
	Do      []Action
	Why     string
}

type rule struct {
	when    func(Facts) bool
	verdict Verdict
	do      []Action
	why     string
}

// Decide finds the first rule that holds.
func Decide(f Facts) Plan {
	for _, r := range rules {
		if r.when(f) {
			return Plan{Verdict: r.verdict, Do: r.do, Why: r.why}
		}
	}
	return Plan{Verdict: Refused, Why: "nobody has thought of it"}
}

// rules is the whole table; first match wins. Reading order: volumes that are being deleted, complete ones, unsupported ones, and
// those under way.
var rules = []rule{
	{func(f Facts) bool { return f.Leaving }, Finished, nil, "it is being deleted, which CDI has to end: its finalizers are CDI's"},

	{func(f Facts) bool { return f.Phase == Succeeded && f.Claim == Bound && f.Recorded }, Taken, nil, "its data is complete, and its claim says so"},
	{func(f Facts) bool { return f.Phase == Succeeded && f.Claim == Bound }, Taken, []Action{Record}, "its data is complete: that is recorded on its claim"},
	{func(f Facts) bool { return f.Phase == Succeeded && f.Claim == Lost }, Taken, nil, "its claim has lost its volume, which nobody can change"},
	{func(f Facts) bool { return f.Phase == Succeeded && f.Claim == Absent }, Refused, nil,
		"it is Succeeded and its claim is gone: Berth would fill another; delete it, or make the claim"},
	{func(f Facts) bool { return f.Phase == Succeeded && f.Claim == Unbound }, Refused, nil,
		"it is Succeeded and its claim is not bound: wait, or delete it"},
	{func(f Facts) bool { return f.Claim == Foreign }, Taken, nil, "a claim of its name is another's: it waits, as before"},
	{func(f Facts) bool { return f.Phase == Failed }, Taken, nil, "it failed: what is on its claim is not written over, and where nothing is, Berth tries again"},

	{func(f Facts) bool { return f.Phase == Paused }, Refused, nil, "it is imported in stages, which Berth does not do: let CDI finish it, or delete it"},
	{func(f Facts) bool { return f.Foreign && f.Phase == Waiting }, Refused, nil,
		"its source is one that Berth does not have: let CDI finish it, or delete it"},
	{func(f Facts) bool { return f.Phase == Unclear }, Refused, nil, "CDI does not say how far it is: wait until it does, or delete it"},

	{func(f Facts) bool { return f.Phase == Moving }, Finished, nil, "CDI is filling it, and goes on until it is done"},
	{func(f Facts) bool { return f.Phase == Receiving && f.Claim != Bound && f.Direct }, Finished, nil, "CDI is making room for an upload"},
	{func(f Facts) bool { return f.Phase == Receiving && f.Direct }, Taken, []Action{Stop, Allow},
		"CDI's server waits for an upload and is stopped: what was not received to its end is sent again"},
	{func(f Facts) bool { return f.Phase == Receiving && f.Claim == Bound }, Finished, nil, "its upload has ended, and CDI is about to say so"},
	{func(f Facts) bool { return f.Phase == Receiving }, Taken, []Action{Stop, Allow}, "CDI's server waits for an upload and is stopped: Berth has its own"},

	{func(f Facts) bool { return f.Phase == Waiting && f.Claim == Bound }, Finished, nil, "its claim is bound, and CDI is about to fill it"},
	{func(f Facts) bool { return f.Phase == Waiting && f.Elsewhere && f.Claim != Lost }, Refused, nil,
		"it is cloned from another namespace, which CDI has allowed, and nothing was copied yet: give it its first consumer, or make it again afterwards"},
	{func(f Facts) bool { return f.Phase == Waiting && f.Claim == Lost }, Taken, nil, "its claim has lost its volume, which nobody can change"},
	{func(f Facts) bool { return f.Phase == Waiting && f.Claim == Unbound && f.Direct }, Taken, []Action{Allow}, "nothing was written: Berth fills it when its claim is bound"},
	{func(f Facts) bool { return f.Phase == Waiting }, Taken, nil, "nothing was written: Berth fills it"},
}

func (p Phase) String() string {
	return name(p, "waiting", "moving", "receiving", "paused", "succeeded", "failed", "unclear")
}

func (c Claim) String() string { return name(c, "absent", "unbound", "bound", "lost", "foreign") }

func name[E ~int](e E, names ...string) string {
	if int(e) < 0 || int(e) >= len(names) {
		return "?"
	}
	return names[e]
}
