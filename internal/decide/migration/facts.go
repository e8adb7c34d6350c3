// Package migration decides what to do next for a guest that is to move to another node. It is a pure function from a few small
// facts to a plan; testdata has every situation that can arise.
//
// Two launchers may have the guest's disks while it moves, and one of them runs it. The source keeps its guest until everything is at
// the target, which holds its guest still until it is certain that the source's has ended. So a target is stopped only while the
// source is known to have the guest, and told to run only when the source is known not to.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/migration and offlinemove turn what they see into facts.
package migration

import "github.com/berth-vm/berth/internal/decide"

// Guest says where the guest is, as the source reports.
type Guest int

// The places.
const (
	Unready Guest = iota // the instance is not there, does not run yet, is being stopped or has ended
	Fixed                // it runs, and cannot be moved
	Queued               // it runs, and another migration of it was asked for before
	Here                 // it runs at the source
	Sent                 // the source says that it has ended there because it is at our target
	// Vanished: the source has certainly ended, and did not say that its guest had left. The target may have all of it and is not
	// to run it: the source may have continued it before it ended, and written to its disks.
	Vanished
)

// Word is the source launcher's report of this migration.
type Word int

// The words.
const (
	Silent Word = iota // nothing
	Sends              // it is at it
	Keeps              // it has given up, and goes on running its guest
)

// Target is the pod that the guest is to move to.
type Target int

// The situations of the target.
const (
	NoTarget    Target = iota
	Waiting            // for a node
	Unplaceable        // no node will have it
	Placed             // on a node; it has not answered yet
	Listens            // it waits for the guest
	Holds              // it has the whole guest and holds it still
	Runs               // it runs the guest
	Ended              // it has ended
	Going              // being deleted
)

// Facts is everything the decision depends on.
type Facts struct {
	// Over: the migration has been said to have ended.
	Over bool
	// Shown: its instance, if there is one, shows how it ended.
	Shown bool
	// Cancelled: it is being deleted, or its instance is.
	Cancelled bool
	Guest     Guest
	Word      Word
	Target    Target
	// Late: no node has had the target for longer than one waits for that.
	Late bool
	// Granted: the target is among the holders of the disks and was told so.
	Granted bool
	// Told: the source was told where to send the guest; ToldOff: and to keep it after all.
	Told    bool
	ToldOff bool
	// Handed: the target was told to run the guest.
	Handed bool
	// Unnamed: claims of the guest's disks do not have the volumes yet that the disks were sent to.
	Unnamed bool
	// Ran: the target is gone, and had run the guest.
	Ran bool
}

func (g Guest) String() string {
	return decide.Name(g, "Unready", "Fixed", "Queued", "Here", "Sent", "Vanished")
}

func (w Word) String() string { return decide.Name(w, "silent", "sends", "keeps") }

func (t Target) String() string {
	return decide.Name(t, "NoTarget", "Waiting", "Unplaceable", "Placed", "Listens", "Holds", "Runs", "Ended", "Going")
}

// alive reports whether the pod exists and is not being deleted.
func (t Target) alive() bool { return t != NoTarget && t != Going }

// gone reports whether the target can no longer take the guest.
func (t Target) gone() bool { return t == NoTarget || t == Ended || t == Going }
