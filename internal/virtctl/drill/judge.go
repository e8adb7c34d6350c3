package drill

// Copy is where the copy of the machine is.
type Copy int

// The states of a copy.
const (
	Starting Copy = iota // its instance does not run yet, or is not there yet
	Running
	Ended   // its guest ended: it powered off or crashed
	Removed // another user deleted it
)

// Disks is how far its disks are.
type Disks int

// The states of its disks.
const (
	Filling Disks = iota
	Full
	Bad // one cannot be filled
)

// facts is all that a judgement depends on.
type facts struct {
	Copy  Copy
	Disks Disks
	// Up: what the drill waits for was seen, once is enough.
	Up bool
	// Late: the deadline has passed.
	Late bool
	// BootOnly: whether all of its disks can be read is not asked.
	BootOnly bool
}

// Result is how a drill ended.
type Result string

// The results. Waiting is none yet.
const (
	Waiting     Result = ""
	Passed      Result = "Passed"
	DiskFailed  Result = "DiskFailed"
	GuestEnded  Result = "GuestEnded"
	CopyRemoved Result = "CopyRemoved"
	NotUp       Result = "NotUpInTime"
	NotFull     Result = "DisksNotFullInTime"
	// Broken and Interrupted are those of a drill that did not come to an end by itself.
	Broken      Result = "NotCarriedOut"
	Interrupted Result = "Interrupted"
)

// rule is a sentence about the facts, and what follows.
type rule struct {
	name string
	when func(facts) bool
	then Result
}

// rules is read from the top; the first that holds decides.
var rules = []rule{
	{"the copy is gone", func(f facts) bool { return f.Copy == Removed }, CopyRemoved},
	{"a disk cannot be restored", func(f facts) bool { return f.Disks == Bad }, DiskFailed},
	{"it is up, and what was asked of its disks is true", func(f facts) bool { return f.Up && (f.BootOnly || f.Disks == Full) }, Passed},
	{"its guest ended before it was up", func(f facts) bool { return f.Copy == Ended && !f.Up }, GuestEnded},
	{"it is not up, and the time is over", func(f facts) bool { return f.Late && !f.Up }, NotUp},
	{"its disks are not full, and the time is over", func(f facts) bool { return f.Late }, NotFull},
	{"it starts", func(f facts) bool { return !f.Up }, Waiting},
	{"its disks are filled", func(facts) bool { return true }, Waiting},
}

// judge returns the rule that holds.
func judge(f facts) rule {
	for _, r := range rules {
		if r.when(f) {
			return r
		}
	}
	panic("the last rule always holds")
}
