package machine

import kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"

// KeepClaim is what has become of the claim that a copy is to be kept in.
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

// KeepWord is what the launcher has said of the claim.
type KeepWord int

// The words.
const (
	KeepSilent  KeepWord = iota // nothing, so far
	KeepWriting                 // QEMU writes to it
	KeepWritten                 // it has everything, and so has its medium
	KeepBroken                  // it will never have everything
)

// KeepFacts is everything the decision about a copy depends on that is to be kept.
type KeepFacts struct {
	Claim KeepClaim
	Word  KeepWord
	// Runs: there is a guest.
	Runs bool
}

// The actions on the claim. The record that it was begun with comes before the first byte: from then on a claim that is not
// recorded as full is never taken for one.
const (
	RecordBegun Action = "RecordBegun"
	RecordKept  Action = "RecordKept"
)

// KeepPlan is what to do about such a claim and what to say.
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
	for _, r := range keepRules {
		if r.when(f) {
			r.plan.Rule = r.name
			return r.plan
		}
	}
	return KeepPlan{}
}

var keepRules = []struct {
	name string
	when func(KeepFacts) bool
	plan KeepPlan
}{
	{"a claim that is not there is waited for", func(f KeepFacts) bool { return f.Claim == ClaimGone }, KeepPlan{Reason: kubevirt.KeepClaimMissing}},
	{"a claim that was not made for it is left alone", func(f KeepFacts) bool { return f.Claim == ClaimForeign }, KeepPlan{Reason: kubevirt.KeepNotForIt}},
	{"a claim that has everything is done", func(f KeepFacts) bool { return f.Claim == ClaimFull }, KeepPlan{Reason: kubevirt.KeepDone}},
	{"a claim that is being deleted is given up", func(f KeepFacts) bool { return f.Claim == ClaimDropped }, KeepPlan{Reason: kubevirt.KeepClaimLeaving}},
	{"what failed is not tried again in the same claim", func(f KeepFacts) bool { return f.Word == KeepBroken }, KeepPlan{Reason: kubevirt.KeepFailed}},
	{"what is written is recorded", func(f KeepFacts) bool { return f.Word == KeepWritten && f.Claim == ClaimBegun },
		KeepPlan{Do: []Action{RecordKept}, Bring: true, Hold: true, Reason: kubevirt.KeepUnderWay}},
	{"without a guest there is nothing to keep", func(f KeepFacts) bool { return !f.Runs }, KeepPlan{Reason: kubevirt.KeepStarting}},
	{"the beginning is recorded first", func(f KeepFacts) bool { return f.Claim == ClaimEmpty }, KeepPlan{Do: []Action{RecordBegun}, Reason: kubevirt.KeepStarting}},
	{"a claim that is being written is waited for", func(f KeepFacts) bool { return f.Word == KeepWriting },
		KeepPlan{Bring: true, Hold: true, Reason: kubevirt.KeepUnderWay}},
	{"a claim is brought to the guest", func(KeepFacts) bool { return true }, KeepPlan{Bring: true, Reason: kubevirt.KeepStarting}},
}

func (c KeepClaim) String() string {
	return name(c, "gone", "foreign", "empty", "begun", "full", "dropped")
}

func (w KeepWord) String() string { return name(w, "silent", "writing", "written", "broken") }
