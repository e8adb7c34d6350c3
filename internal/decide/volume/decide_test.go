package volume

import (
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// axes are the facts; their order makes the printed table short.
var axes = []enumerate.Axis[Facts]{
	enumerate.Enum(Following, func(f *Facts) *Claim { return &f.Claim }),
	enumerate.Enum(Applied, func(f *Facts) *Data { return &f.Data }),
	enumerate.Enum(Fatal, func(f *Facts) *Worker { return &f.Worker }),
	enumerate.Enum(Staged, func(f *Facts) *Flow { return &f.Flow }),
	enumerate.Enum(Larger, func(f *Facts) *Origin { return &f.Origin }),
	enumerate.Enum(Taken, func(f *Facts) *Access { return &f.Access }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.RetryDue }),
}

// TestDecisionTable compares the whole behaviour with a file that a person can read: one line for every group of
// situations that is decided alike. A change of behaviour is a change of that file.
func TestDecisionTable(t *testing.T) {
	got := "# claim data worker flow origin access retry-due -> state [actions]; a|b is either, * is any.\n" +
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) })
	golden.Equal(t, "testdata/decisions.txt", got)
}

func TestEveryRuleIsAlive(t *testing.T) {
	enumerate.Rules(t, axes, rules)
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
		if row.Phase == cdiv1.Unknown {
			fail("no row for the state")
		}
		if row.Ready && !complete(f) && !p.Does(RecordData) && !p.Does(RecordKept) {
			fail("ready without data")
		}
		if row.Ready && f.Claim != Bound && f.Worker != Done && f.Worker != Retained {
			fail("ready on a claim that is not bound")
		}
		if p.Does(RecordKept) && f.Data != Found {
			fail("kept although nobody says that it is to be")
		}
		if p.Does(RecordData) && (f.Data == Paused || f.Flow == Staged && f.Data == None) {
			fail("declared complete although stages are to come")
		}
		if p.Does(RecordData) && f.Data == Condemned {
			fail("condemned data declared complete")
		}
		if f.Claim == Held && (p.Does(StartWorker) || p.Does(StartServer)) {
			fail("a worker would bind a held claim")
		}
		early := f.Flow == Clone && f.Origin != Usable && f.Origin < Misplaced // what comes after is a matter of drivers alone
		if p.Does(StartWorker) && (f.Worker != NoWorker || f.Data != None || early) {
			fail("a worker started too early")
		}
		if p.Does(StartWorker) && f.Access == Taken {
			fail("a worker beside somebody else")
		}
		if p.Does(RecordData) && f.Flow == Clone && f.Origin == Busy && f.Data == None {
			fail("a clone declared complete although its source was written to")
		}
		if p.Does(CreateClaim) && f.Claim != Absent {
			fail("a claim made over another")
		}
		if p.Does(RemoveClaim) && (f.Claim == Bound || f.Data != None) {
			fail("a claim removed that may hold data")
		}
	})
}
