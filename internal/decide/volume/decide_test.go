package volume

import (
	"fmt"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// axes are the facts; their order makes the printed table short.
var axes = []enumerate.Axis[Facts]{
	{Count: int(Following) + 1, Set: func(f *Facts, i int) string { f.Claim = Claim(i); return f.Claim.String() }},
	{Count: int(Unknown) + 1, Set: func(f *Facts, i int) string { f.Data = Data(i); return f.Data.String() }},
	{Count: int(Fatal) + 1, Set: func(f *Facts, i int) string { f.Worker = Worker(i); return f.Worker.String() }},
	{Count: int(External) + 1, Set: func(f *Facts, i int) string { f.Flow = Flow(i); return f.Flow.String() }},
	{Count: int(Larger) + 1, Set: func(f *Facts, i int) string { f.Origin = Origin(i); return f.Origin.String() }},
	{Count: int(Taken) + 1, Set: func(f *Facts, i int) string { f.Access = Access(i); return f.Access.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.RetryDue = i == 1; return fmt.Sprint(f.RetryDue) }},
}

// TestDecisionTable compares the whole behaviour with a file that a person can read: one line for every group of
// situations that is decided alike. A change of behaviour is a change of that file.
func TestDecisionTable(t *testing.T) {
	got := "# claim data worker flow origin access retry-due -> state [actions]; a|b is either, * is any.\n" +
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%s %v", p.State, p.Do)
		})
	golden.Equal(t, "testdata/decisions.txt", got)
}

func TestEveryRuleIsAlive(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) { used[Decide(f).Rule] = true })
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
		delete(used, r.name)
	}
	for name := range used {
		t.Errorf("some situation has no rule (%q)", name)
	}
}

// TestEveryStateIsSaid: a row of the state table that no decision leads to, and no refusal of the API server, is dead.
func TestEveryStateIsSaid(t *testing.T) {
	said := map[state.Reason]bool{state.QuotaExceeded: true, state.WorkerRefused: true, state.Unsupported: true}
	enumerate.Every(axes, func(f Facts) { said[Decide(f).State] = true })
	for _, row := range state.Rows() {
		if !said[row.Reason] {
			t.Errorf("nothing ever says %s", row.Reason)
		}
	}
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		row := state.Of(p.State)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		does := func(a Action) bool {
			for _, d := range p.Do {
				if d == a {
					return true
				}
			}
			return false
		}
		if row.Phase == cdiv1.Unknown {
			fail("no row for the state")
		}
		if row.Ready && !complete(f) && !does(RecordData) && !does(RecordKept) {
			fail("ready without data")
		}
		if row.Ready && f.Claim != Bound && f.Worker != Done && f.Worker != Retained {
			fail("ready on a claim that is not bound")
		}
		if does(RecordKept) && f.Data != Found {
			fail("kept although nobody says that it is to be")
		}
		if does(RecordData) && f.Data == Condemned {
			fail("condemned data declared complete")
		}
		if f.Claim == Held && (does(StartWorker) || does(StartServer)) {
			fail("a worker would bind a held claim")
		}
		early := f.Flow == Clone && f.Origin != Usable && f.Origin < Misplaced // what comes after is a matter of drivers alone
		if does(StartWorker) && (f.Worker != NoWorker || f.Data != None || early) {
			fail("a worker started too early")
		}
		if does(StartWorker) && f.Access == Taken {
			fail("a worker beside somebody else")
		}
		if does(RecordData) && f.Flow == Clone && f.Origin == Busy && f.Data == None {
			fail("a clone declared complete although its source was written to")
		}
		if does(CreateClaim) && f.Claim != Absent {
			fail("a claim made over another")
		}
		if does(RemoveClaim) && (f.Claim == Bound || f.Data != None) {
			fail("a claim removed that may hold data")
		}
	})
}
