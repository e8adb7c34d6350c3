package machine

import (
	"fmt"
	"slices"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var keepAxes = []enumerate.Axis[KeepFacts]{
	enumerate.Enum(ClaimDropped, func(f *KeepFacts) *KeepClaim { return &f.Claim }),
	enumerate.Enum(KeepBroken, func(f *KeepFacts) *KeepWord { return &f.Word }),
	enumerate.Flag("off", "runs", func(f *KeepFacts) *bool { return &f.Runs }),
}

func TestKeepTable(t *testing.T) {
	golden.Equal(t, "testdata/keep.txt", "# claim word guest -> reason bring hold [actions]\n"+
		enumerate.Table(keepAxes, func(f KeepFacts) string {
			p := Keep(f)
			return fmt.Sprintf("%s %v %v %v", p.Reason, p.Bring, p.Hold, p.Do)
		}))
}

func TestKeepInvariants(t *testing.T) {
	enumerate.Every(keepAxes, func(f KeepFacts) {
		p := Keep(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if slices.Contains(p.Do, RecordKept) && (f.Word != KeepWritten || f.Claim != ClaimBegun) {
			fail("a claim is called full that nobody has filled")
		}
		if p.Bring && f.Claim != ClaimBegun {
			fail("a claim is written to without a record that it is begun with")
		}
		if len(p.Do) > 0 && (f.Claim == ClaimForeign || f.Claim == ClaimFull) {
			fail("somebody else's claim is touched")
		}
		if p.Hold && !p.Bring {
			fail("an instance is held for nothing")
		}
		if p.Hold && f.Word == KeepSilent {
			fail("an instance is held for a claim that may never come")
		}
		if (p.Reason == kubevirt.KeepDone) != (f.Claim == ClaimFull) {
			fail("done must mean that it is recorded")
		}
	})
	enumerate.Rules(t, keepAxes, keepRules)
}
