// Package direct decides whether the disk of a claim is opened at its server by QEMU or comes by way of a mount. It is pure;
// testdata has every situation.
//
// It does not know what a PersistentVolume looks like (internal/behind does) nor where an administrator's consent is written.
package direct

import "github.com/berth-vm/berth/internal/state"

// Asked is what the machine says.
type Asked int

// What it can say.
const (
	Unsaid Asked = iota
	Yes
	No
)

// Kind is what is behind the claim.
type Kind int

// The kinds.
const (
	Other      Kind = iota // no network disk that QEMU has a client for
	Network                // a network disk that QEMU can open as it is
	Unopenable             // a network disk that needs something of the node besides, a key for its encryption for example
)

// Facts is everything the decision depends on.
type Facts struct {
	Asked Asked
	Kind  Kind
	// Block: the claim is a device, so that the network disk is the machine's disk and no filesystem is on it.
	Block bool
	// Consent: the administrator lets machines have what the volume's Secret says.
	Consent bool
}

// Plan is how the disk is opened. A Reason says why it is not opened at all.
type Plan struct {
	Rule   string
	Direct bool
	Reason state.MachineReason
}

type rule struct {
	name   string
	when   func(Facts) bool
	direct bool
	reason state.MachineReason
}

// Decide finds the first rule that holds.
func Decide(f Facts) Plan {
	for _, r := range rules {
		if r.when(f) {
			return Plan{Rule: r.name, Direct: r.direct, Reason: r.reason}
		}
	}
	return Plan{}
}

// rules is the whole decision; first match wins. A machine that says nothing is never refused: it gets a mount.
var rules = []rule{
	{"a machine that wants a mount gets one", func(f Facts) bool { return f.Asked == No }, false, ""},
	{"what is no network disk is mounted",
		func(f Facts) bool { return f.Asked == Unsaid && f.Kind != Network }, false, ""},
	{"a filesystem is mounted, for the disk is a file in it",
		func(f Facts) bool { return f.Asked == Unsaid && !f.Block }, false, ""},
	{"without consent it is mounted", func(f Facts) bool { return f.Asked == Unsaid && !f.Consent }, false, ""},
	{"what QEMU cannot open is not opened directly",
		func(f Facts) bool { return f.Kind != Network }, false, state.DirectImpossible},
	{"a filesystem is not given to a guest as a disk", func(f Facts) bool { return !f.Block }, false, state.DirectImpossible},
	{"without consent nothing is opened directly", func(f Facts) bool { return !f.Consent }, false, state.DirectForbidden},
	{"a network block device is opened directly", func(Facts) bool { return true }, true, ""},
}

func (a Asked) String() string { return [...]string{"Unsaid", "Yes", "No"}[a] }
func (k Kind) String() string  { return [...]string{"Other", "Network", "Unopenable"}[k] }
