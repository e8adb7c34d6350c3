// Package direct decides whether the disk of a claim is opened at its server by QEMU or comes by way of a mount. It is pure;
// testdata has every situation.
//
// It does not know what a PersistentVolume looks like (internal/netdisk does) nor where an administrator's consent is written.
package direct

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Asked is the machine's request.
type Asked int

// What it can say.
const (
	Unsaid Asked = iota
	Yes
	No
)

// Kind is the kind of volume behind the claim.
type Kind int

// The kinds.
const (
	Other      Kind = iota // no network disk that QEMU has a client for
	Network                // a network disk that QEMU can open as it is
	Unopenable             // a network disk that needs something of the node besides, a key for its encryption for example
)

// Consent says which machines the administrator allows to open the volume at its server.
type Consent int

// What the administrator can say.
const (
	Silent  Consent = iota
	Given           // machines may have what the volume's Secret says
	Refused         // also: the Secret cannot be read
)

// Facts is everything the decision depends on.
type Facts struct {
	Asked Asked
	Kind  Kind
	// Block: the claim is a device, so that the network disk is the machine's disk and no filesystem is on it.
	Block bool
	// Login: the server asks for one, which the volume names a Secret for.
	Login   bool
	Consent Consent
}

// Plan says how the disk is opened. A Reason says why it is not opened at all.
type Plan struct {
	Rule   string
	Direct bool
	Reason state.MachineReason
}

// The ways to open a disk, and none.
var (
	mount  = Plan{}
	direct = Plan{Direct: true}
)

func refuse(why state.MachineReason) Plan { return Plan{Reason: why} }

// Decide finds the first rule that holds.
func Decide(f Facts) Plan {
	p := decide.First(rules, f)
	plan := p.State
	plan.Rule = p.Rule
	return plan
}

// rules is the whole decision; first match wins. A machine that does not ask is never refused: it gets a mount.
var rules = []decide.Rule[Facts, decide.Nothing, Plan]{
	{"a machine that wants a mount gets one", func(f Facts) bool { return f.Asked == No }, nil, mount},
	{"what is no network disk is mounted",
		func(f Facts) bool { return f.Asked == Unsaid && f.Kind != Network }, nil, mount},
	{"a filesystem is mounted, for the disk is a file in it",
		func(f Facts) bool { return f.Asked == Unsaid && !f.Block }, nil, mount},
	{"without consent it is mounted", func(f Facts) bool { return f.Asked == Unsaid && f.Consent != Given }, nil, mount},
	{"what QEMU cannot open is not opened directly",
		func(f Facts) bool { return f.Kind != Network }, nil, refuse(state.DirectImpossible)},
	{"a filesystem is not given to a guest as a disk", func(f Facts) bool { return !f.Block }, nil, refuse(state.DirectImpossible)},
	{"what the administrator refuses is not opened directly", func(f Facts) bool { return f.Consent == Refused }, nil, refuse(state.DirectForbidden)},
	{"without consent no login is lent", func(f Facts) bool { return f.Login && f.Consent != Given }, nil, refuse(state.DirectForbidden)},
	{"a network block device is opened directly", func(Facts) bool { return true }, nil, direct},
}

func (a Asked) String() string { return [...]string{"Unsaid", "Yes", "No"}[a] }
func (c Consent) String() string {
	return [...]string{"Silent", "Given", "Refused"}[c]
}
func (k Kind) String() string { return [...]string{"Other", "Network", "Unopenable"}[k] }
