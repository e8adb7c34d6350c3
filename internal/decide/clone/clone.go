// Package clone chooses how a claim is cloned. Choose is a pure function with a reason that becomes the volume's
// condition message; it does not know Kubernetes objects and does not carry anything out.
package clone

import "fmt"

// Strategy is a way to make a clone.
type Strategy string

// The strategies, from the cheapest to the one that always works. Impossible is none of them.
const (
	CSIClone   Strategy = "csi-clone" // the storage driver clones the volume
	Snapshot   Strategy = "snapshot"  // a snapshot is restored
	Copy       Strategy = "copy"      // one worker, both claims, one node: a reflink where the filesystem has them
	Stream     Strategy = "stream"    // a worker at each end, over the network
	Impossible Strategy = ""
)

// Source describes the source of a clone.
type Source struct {
	IsSnapshot  bool // a VolumeSnapshot and not a claim
	Namespace   string
	Provisioner string // empty: none, or unknown
	Block       bool
	Busy        bool // a pod writes to it
}

// Target is the claim to be made of it.
type Target struct {
	Namespace   string
	Provisioner string
	Block       bool
	Larger      bool // than the source
	Made        bool // it exists without a data source: its driver can no longer fill it
	Apart       bool // no node reaches both volumes
	// Elsewhere is why the target has to be where the source cannot be used; "" if it does not, or that is unknown.
	Elsewhere string
}

// Classes describes what the cluster's storage can do.
type Classes struct {
	Wanted        Strategy // what is preferred; empty: no preference
	Asked         bool     // by the claim's author, not by the administrator or the storage profile
	Driver        bool     // the target's provisioner is a CSI driver
	SnapshotClass string   // for the provisioner; empty: there is none
	RestoreClass  string   // makes claims of a snapshot that is the source; empty: there is none
	Expands       bool     // the target's class allows volume expansion
}

// Choose picks the cheapest strategy that works, and says why no cheaper one does.
func Choose(s Source, t Target, c Classes) (Strategy, string) {
	if s.IsSnapshot {
		return fromSnapshot(s, t, c)
	}
	strategy, why := byDriver(s, t, c)
	if strategy != Impossible {
		return strategy, why
	}
	return byWorker(s, t, why)
}

// byWorker returns the way that always works, once there is a claim to read from.
func byWorker(s Source, t Target, why string) (Strategy, string) {
	switch {
	case s.Namespace != t.Namespace:
		return Stream, why + "; streamed between two workers, since no pod can use claims of two namespaces"
	case t.Apart, t.Elsewhere != "":
		return Stream, why + "; streamed between two workers, since no node reaches both volumes"
	}
	return Copy, why + "; copied by one worker that has both claims"
}

// fromSnapshot has the snapshot restored: to the target itself, or where its driver cannot do that to a claim that is there
// for as long as a worker reads from it.
func fromSnapshot(s Source, t Target, c Classes) (Strategy, string) {
	why := obstacle(s, t, c)
	switch {
	case why == "":
		return Snapshot, "restored by the storage driver"
	case c.RestoreClass == "":
		return Impossible, fmt.Sprintf("%s; no storage class of %s can restore the snapshot, create one", why, or(s.Provisioner, "its driver"))
	}
	return byWorker(s, t, why+"; restored to a temporary claim of class "+c.RestoreClass)
}

// byDriver returns the way the storage driver itself would clone, or why it cannot.
func byDriver(s Source, t Target, c Classes) (Strategy, string) {
	if why := obstacle(s, t, c); why != "" {
		return Impossible, why
	}
	switch c.Wanted {
	case Copy, Stream:
		return Impossible, c.whose() + " asks for copying"
	case CSIClone:
		if !s.Busy {
			return CSIClone, c.whose() + " asks for it"
		}
		if c.SnapshotClass == "" {
			return Impossible, "the source is in use and there is no snapshot class (NoVolumeSnapshotClass)"
		}
		return Snapshot, "the source is in use, so a snapshot of it is cloned"
	case Snapshot, Impossible:
	}
	if c.SnapshotClass == "" {
		return Impossible, "there is no snapshot class for " + t.Provisioner + " (NoVolumeSnapshotClass)"
	}
	return Snapshot, "cloned by snapshot with class " + c.SnapshotClass
}

// whose names the author of the requested strategy for messages: the claim's, or an administrator's setting.
func (c Classes) whose() string {
	if c.Asked {
		return "the claim"
	}
	return "the storage profile or the CDI resource"
}

// Known returns the strategy as clients of cdi.kubevirt.io know it: whether a copy goes over the network is no business of
// theirs.
func (s Strategy) Known() Strategy {
	if s == Stream {
		return Copy
	}
	return s
}

// FellBack reports whether a dearer strategy was chosen than the one that was wanted, or than the storage offers.
func FellBack(got Strategy, s Source, c Classes) bool {
	switch got {
	case Copy, Stream:
		return c.Wanted != Copy && c.Wanted != Stream
	case Snapshot:
		return c.Wanted == CSIClone && !s.IsSnapshot
	case CSIClone, Impossible:
	}
	return false
}

// obstacle returns why the target's driver cannot make the target out of the source. The words in brackets are the ones CDI's
// users know from its events.
func obstacle(s Source, t Target, c Classes) string {
	switch {
	case t.Made:
		return "the claim was made before its source was known"
	case !c.Driver:
		return fmt.Sprintf("%s is no CSI driver that could clone (NoProvisionerMatch)", or(t.Provisioner, "the target's class"))
	case s.Provisioner != t.Provisioner:
		return fmt.Sprintf("source and target have different provisioners, %s and %s (IncompatibleProvisioners)",
			or(s.Provisioner, "none"), t.Provisioner)
	case s.Namespace != t.Namespace:
		return "a storage driver clones only within a namespace"
	case s.Block != t.Block:
		return "source and target have different volume modes (IncompatibleVolumeModes)"
	case t.Larger && !c.Expands:
		return "the target is larger and its class does not allow expansion (NoVolumeExpansion)"
	case t.Elsewhere != "":
		return t.Elsewhere
	}
	return ""
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
