package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func either(set func(*Facts, bool), no, yes string) enumerate.Axis[Facts] {
	return enumerate.Axis[Facts]{Count: 2, Set: func(f *Facts, i int) string {
		set(f, i == 1)
		return []string{no, yes}[i]
	}}
}

var axes = []enumerate.Axis[Facts]{
	either(func(f *Facts, b bool) { f.Leaving = b }, "stays", "leaving"),
	{Count: int(Unclear) + 1, Set: func(f *Facts, i int) string { f.Phase = Phase(i); return f.Phase.String() }},
	{Count: int(Foreign) + 1, Set: func(f *Facts, i int) string { f.Claim = Claim(i); return f.Claim.String() }},
	either(func(f *Facts, b bool) { f.Direct = b }, "by-prime", "direct"),
	either(func(f *Facts, b bool) { f.Foreign = b }, "known", "unknown"),
	either(func(f *Facts, b bool) { f.Elsewhere = b }, "here", "elsewhere"),
	either(func(f *Facts, b bool) { f.Recorded = b }, "unrecorded", "recorded"),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# leaving phase claim way source from record -> verdict [actions] why\n"+
		enumerate.Table(axes, func(f Facts) string { p := Decide(f); return fmt.Sprintf("%s %v %s", p.Verdict, p.Do, p.Why) }))
}

// TestEveryRuleIsUsed: a rule that never wins is a mistake about one that comes before it, and no situation is without one.
func TestEveryRuleIsUsed(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) { used[Decide(f).Why] = true })
	for i, r := range rules {
		if !used[r.why] {
			t.Errorf("rule %d, %q, never holds", i, r.why)
		}
	}
	if used["nobody has thought of it"] {
		t.Error("there is a situation without a rule")
	}
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if does(Allow) && (f.Phase == Succeeded || f.Phase == Moving || f.Phase == Failed || f.Claim == Foreign) {
			fail("something may be written over")
		}
		if p.Verdict == Taken && f.Phase == Moving && f.Claim != Foreign {
			fail("two write")
		}
		if p.Verdict == Taken && f.Phase == Succeeded && f.Claim == Bound && !f.Recorded && !does(Record) {
			fail("it would be filled again, or be of unknown contents")
		}
		if p.Verdict == Taken && f.Phase == Succeeded && (f.Claim == Absent || f.Claim == Unbound) {
			fail("it would be filled again")
		}
		if p.Verdict == Taken && f.Phase == Waiting && f.Elsewhere && (f.Claim == Absent || f.Claim == Unbound) {
			fail("it would wait for ever: Berth cannot read what CDI allowed")
		}
		if does(Record) && (f.Phase != Succeeded || f.Claim != Bound) {
			fail("something is called complete that is not")
		}
		if len(p.Do) > 0 && p.Verdict != Taken {
			fail("something is done to what is not taken")
		}
		if does(Allow) && f.Claim == Bound && !does(Stop) {
			fail("a claim is given to Berth that a server of CDI may write to")
		}
	})
}
