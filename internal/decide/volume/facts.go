// Package volume decides what to do next for a claim that has to be filled. Decide is a pure function from a handful of small
// facts to a plan, so every situation that can arise is one line of testdata/decisions.txt.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/fill reads the cluster and turns what it sees
// into Facts, for DataVolumes and for claims that are populated without one.
package volume

// Flow is the way in which the claim gets its data.
type Flow int

// The flows. Provision and Restore mean that the storage driver fills the claim while it provisions it, from another volume or
// from a snapshot; Enlarge and EnlargeRestored are the same with a disk that a worker makes larger afterwards; External means that
// another populator does it; Staged is an import in stages, of which more may be asked for while it continues.
const (
	Import Flow = iota
	Upload
	Clone
	Provision
	Restore
	Enlarge
	EnlargeRestored
	External
	Staged
)

// Origin is the volume or snapshot that a clone is made of. Volumes that are not clones always have it Usable.
type Origin int

// What can be wrong with a clone's origin.
const (
	Usable    Origin = iota
	Missing          // it does not exist
	Unfilled         // it exists, but nothing proves that its data is complete
	Busy             // a pod writes to it
	Unfit            // the target is too small, or the modes do not go together
	Forbidden        // the volume's author may not read it
	Preparing        // a snapshot of it is being taken
	Restoring        // the claim that a snapshot is restored to, to be read from, is not there yet
	Unready          // the worker that serves it is not up yet, or not any more
	Misplaced        // its driver cannot fill the claim where that is wanted
	Beside           // its driver can fill the claim only beside it, and the claim's user can run there
	Replaced         // another worker serves it now than the one that a worker was made to read from
	Larger           // it does not fit in the claim
)

// Claim is the PersistentVolumeClaim with the volume's name.
type Claim int

// The situations of a claim. Held is WaitForFirstConsumer and the whole of it: unbound, its class waits, the gate is on and
// immediate binding is not asked for. Waiting is the same claim when the worker may be the first consumer.
const (
	Absent     Claim = iota
	Incomplete       // absent, and what was asked for cannot be completed to a valid claim
	Foreign          // it has another owner
	Unusable         // it may be adopted but does not offer what was asked for
	Adoptable        // it has no owner and may be taken
	Unbound          // its class binds at once, but has not
	Held
	Waiting
	Bound
	Lost
	Leaving   // it is being deleted
	Following // it is being deleted, absent or unbound, because its data moved to another volume that it is to get
)

// Data is the record of the claim's contents. It outlives every worker.
type Data int

// What can be known of the contents. Each is recorded somewhere: a claim without any record is Unknown, never None.
const (
	None      Data = iota // there is no claim yet, or it was made empty to be filled: a worker may write to it
	Present               // complete: a worker was done
	Kept                  // complete, and nothing was transferred: the author of the claim or its volume says so
	Found                 // the claim's volume was there before it, or is reserved for it, and keeps its contents; that they are complete is not recorded yet
	Condemned             // a worker said that no further try can succeed
	Unknown               // nothing says that the claim may be written to: it may hold data to keep
	Paused                // every stage that is asked for is complete, and more are to come
	Applied               // the last stage is complete; that all data is, is not recorded yet
)

// Worker is the pod that moves the bytes.
type Worker int

// The situations of a worker. Failed is a try that is worth repeating.
const (
	NoWorker    Worker = iota
	Going              // it is being deleted, or it was made for an earlier claim of this name
	Pending            // made, not running yet
	Unplaceable        // no node will have it
	Stranded           // nor ever can: it was made to have a source beside its claim that is on another node
	Unfetchable        // the node cannot fetch its image
	Running
	CutOff // its node does not answer, so its progress is unknown
	Done
	Retained // done, and kept because a user wants to read its log
	Failed
	Fatal
)

// Access is the record of who has the disk of the claim, and the disks of its worker.
type Access int

// What can be recorded.
const (
	Clear      Access = iota // no one else has the claim's disk, and the worker, if there is one, is recorded as a holder
	Unrecorded               // the worker is not recorded as a holder of its disks, or not with its node
	Taken                    // another pod has the claim's disk
)

// Facts is everything a decision depends on.
type Facts struct {
	Claim  Claim
	Data   Data
	Flow   Flow
	Origin Origin
	Worker Worker
	// RetryDue: the pause after a Failed worker is over.
	RetryDue bool
	Access   Access
}
