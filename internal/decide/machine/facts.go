// Package machine decides what to do next for a virtual machine. Instance is about one run (its disks, its consumer,
// its launcher), Run about whether there is to be a run at all. Both are pure functions from a few small facts to a
// plan; testdata has every situation that can arise.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/observed and compose turn what they see into facts.
package machine

import "github.com/berth-vm/berth/internal/decide"

// Disks is the state of the machine's disks together. The worst of them counts, in the order below.
type Disks int

// The situations of the disks. Held is WaitForFirstConsumer: at least one claim waits for its first consumer, and all
// the others are ready or wait too.
const (
	Ready   Disks = iota
	Unbound       // a claim waits for its first consumer, which is the launcher itself
	Held          // one consumer can bind them all
	Filling       // a worker is at it, or a claim is not far enough to be held
	Failing       // the last try to fill a volume failed, and there will be another
	Missing       // a claim or a volume does not exist
	Failed        // a volume will never be filled
)

// Access says whether the launcher may have the machine's disks, by the access records.
type Access int

// The situations of the records.
const (
	Free     Access = iota // those that have one of them can share it
	Have                   // the launcher is among the holders of each
	Taken                  // another pod has one of them and cannot share it
	Partly                 // another pod has one of them, and the launcher has the rest
	LogsIn                 // the launcher has not logged in at all the servers of disks that the machine names
	LoggedIn               // it has, and that is not recorded yet
)

// Pod is a consumer or a launcher.
type Pod int

// The situations of a pod.
const (
	NoPod       Pod = iota
	Waiting         // for a node
	Unplaceable     // no node will have it
	Placed          // on a node, not ready
	Up              // ready: of a launcher, the guest runs
	Done            // ended in good order
	Broken          // ended in bad order
	Going           // being deleted
)

// Past is the record of a guest whose launcher is gone. A guest is started once.
type Past int

// The records.
const (
	NoPast    Past = iota // it was never told to start
	PastWell              // it powered off
	PastBadly             // it ended in any other way, or nothing says how
)

// Facts is everything the decision about an instance depends on.
type Facts struct {
	// Leaving: the instance is being deleted.
	Leaving  bool
	Disks    Disks
	Consumer Pod
	Launcher Pod
	// Others are launchers that the guest left or did not come to, taken together: NoPod, Placed or Going.
	Others Pod
	// Past of its guest, if there is no launcher.
	Past Past
	// Access to the disks, if they are Ready.
	Access Access
	// Nominated: the launcher is promised the consumer's node, so the room survives the consumer; or there is no such node.
	Nominated bool
	// Unsupported: the instance asks for what guests here cannot have.
	Unsupported bool
	// Released: the launcher has been told that its disks are filled.
	Released bool
}

// alive reports whether the pod exists and is not being deleted.
func (p Pod) alive() bool { return p != NoPod && p != Going }

// queued reports whether the pod has no node yet.
func (p Pod) queued() bool { return p == Waiting || p == Unplaceable }

func (d Disks) String() string {
	return decide.Name(d, "Ready", "Unbound", "Held", "Filling", "Failing", "Missing", "Failed")
}

func (a Access) String() string {
	return decide.Name(a, "Free", "Have", "Taken", "Partly", "LogsIn", "LoggedIn")
}

func (p Past) String() string { return decide.Name(p, "NoPast", "PastWell", "PastBadly") }

// denied reports whether another pod has a disk.
func (a Access) denied() bool { return a == Taken || a == Partly }

func (p Pod) String() string {
	return decide.Name(p, "NoPod", "Waiting", "Unplaceable", "Placed", "Up", "Done", "Broken", "Going")
}
