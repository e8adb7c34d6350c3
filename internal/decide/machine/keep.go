package machine

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide"
)

// KeepClaim is the state of the claim that a copy is written to.
type KeepClaim int

// The situations of the claim.
const (
	ClaimGone    KeepClaim = iota // there is none of that name
	ClaimForeign                  // it was not made for this copy: what is in it is not touched
	ClaimEmpty                    // it was made for this copy, and nothing says that it was begun with
	ClaimBegun                    // it is recorded on it that it is being written
	ClaimFull                     // it is recorded on it that it has everything
	ClaimDropped                  // it is being deleted
)

// KeepWord is the launcher's report of the claim.
type KeepWord int

// The words.
const (
	KeepSilent  KeepWord = iota // nothing, so far
	KeepWriting                 // QEMU writes to it
	KeepWritten                 // it has everything, and so has its medium
	KeepBroken                  // it will never have everything
)

// KeepFacts is everything that the decision about a copy to keep depends on.
type KeepFacts struct {
	Claim KeepClaim
	Word  KeepWord
	// Runs: there is a guest.
	Runs bool
}

// The actions on the claim. The record of the start is written before the first byte: from then on a claim without the record of
// the end counts as incomplete.
const (
	RecordBegun Action = "RecordBegun"
	RecordKept  Action = "RecordKept"
)

// KeepPlan is the action on such a claim and the state to report.
type KeepPlan struct {
	Rule string
	Do   []Action
	// Bring: the launcher is to have the claim.
	Bring bool
	// Hold: an instance that is being deleted waits for it.
	Hold   bool
	Reason string
}

// Keep finds the first rule that holds.
func Keep(f KeepFacts) KeepPlan {
	p := decide.First(keepRules, f)
	plan := p.State
	plan.Rule, plan.Do = p.Rule, p.Do
	return plan
}

var keepRules = []decide.Rule[KeepFacts, Action, KeepPlan]{
	{"a claim that is not there is waited for", func(f KeepFacts) bool { return f.Claim == ClaimGone }, nil, KeepPlan{Reason: kubevirt.KeepClaimMissing}},
	{"a claim that was not made for it is left alone", func(f KeepFacts) bool { return f.Claim == ClaimForeign }, nil, KeepPlan{Reason: kubevirt.KeepNotForIt}},
	{"a claim that has everything is done", func(f KeepFacts) bool { return f.Claim == ClaimFull }, nil, KeepPlan{Reason: kubevirt.KeepDone}},
	{"a claim that is being deleted is given up", func(f KeepFacts) bool { return f.Claim == ClaimDropped }, nil, KeepPlan{Reason: kubevirt.KeepClaimLeaving}},
	{"what failed is not tried again in the same claim", func(f KeepFacts) bool { return f.Word == KeepBroken }, nil, KeepPlan{Reason: kubevirt.KeepFailed}},
	{"what is written is recorded", func(f KeepFacts) bool { return f.Word == KeepWritten && f.Claim == ClaimBegun },
		[]Action{RecordKept}, KeepPlan{Bring: true, Hold: true, Reason: kubevirt.KeepUnderWay}},
	{"without a guest there is nothing to keep", func(f KeepFacts) bool { return !f.Runs }, nil, KeepPlan{Reason: kubevirt.KeepStarting}},
	{"the beginning is recorded first", func(f KeepFacts) bool { return f.Claim == ClaimEmpty }, []Action{RecordBegun}, KeepPlan{Reason: kubevirt.KeepStarting}},
	{"a claim that is being written is waited for", func(f KeepFacts) bool { return f.Word == KeepWriting },
		nil, KeepPlan{Bring: true, Hold: true, Reason: kubevirt.KeepUnderWay}},
	{"a claim is brought to the guest", func(KeepFacts) bool { return true }, nil, KeepPlan{Bring: true, Reason: kubevirt.KeepStarting}},
}

func (c KeepClaim) String() string {
	return decide.Name(c, "gone", "foreign", "empty", "begun", "full", "dropped")
}

func (w KeepWord) String() string { return decide.Name(w, "silent", "writing", "written", "broken") }
