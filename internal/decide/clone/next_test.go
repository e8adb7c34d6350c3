package clone

import (
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var ways = []Strategy{CSIClone, Snapshot, Copy, Stream, Impossible}

// axes are the facts; their order makes the printed table short.
var axes = []enumerate.Axis[Facts]{
	enumerate.Named(func(f *Facts) *Claim { return &f.Claim }, "Unmade", "Vague", "Plain", "Copied", "Unserved", "Superseded", "ByDriver", "Delivered", "Settled"),
	enumerate.Named(func(f *Facts) *Origin { return &f.Origin }, "Found", "Unresolved", "Forbidden", "Missing", "Unfilled"),
	{Count: len(ways), Set: func(f *Facts, i int) string { f.Way = ways[i]; return or(string(ways[i]), "impossible") }},
	enumerate.Flag("not-lost", "lost", func(f *Facts) *bool { return &f.Lost }),
	enumerate.Named(func(f *Facts) *Spot { return &f.Spot }, "Anywhere", "Elsewhere", "Beside"),
	enumerate.Flag("not-from-snapshot", "from-snapshot", func(f *Facts) *bool { return &f.FromSnapshot }),
	enumerate.Flag("not-grown", "grown", func(f *Facts) *bool { return &f.Grown }),
	enumerate.Flag("not-of-snapshot", "of-snapshot", func(f *Facts) *bool { return &f.OfSnapshot }),
	enumerate.Flag("not-freezes", "freezes", func(f *Facts) *bool { return &f.Freezes }),
	enumerate.Flag("not-busy", "busy", func(f *Facts) *bool { return &f.Busy }),
	enumerate.Named(func(f *Facts) *Aid { return &f.Taken }, "untaken", "taking", "taken"),
	enumerate.Named(func(f *Facts) *Aid { return &f.Restored }, "unrestored", "restoring", "restored"),
	enumerate.Flag("not-served", "served", func(f *Facts) *bool { return &f.Served }),
}

// TestDecisionTable compares the whole behaviour with a file that a person can read.
func TestDecisionTable(t *testing.T) {
	got := "# claim origin way lost spot from-snapshot grown of-snapshot freezes busy taken restored served -> flow origin, and what is read;\n" +
		"# a|b is either, * is any.\n" + enumerate.Table(axes, func(f Facts) string {
		s := Next(f)
		text := fmt.Sprintf("%s %s", s.Flow, s.Origin)
		if s.Via {
			text += " via a snapshot"
		}
		return text
	})
	golden.Equal(t, "testdata/decisions.txt", got)
}

func TestEveryRuleIsAlive(t *testing.T) {
	enumerate.Rules(t, axes, rules)
}

// TestStepsAreSafe: a source is not read that is in use or missing, and no right to clone is assumed.
func TestStepsAreSafe(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		s := Next(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, s) }
		begins := s.Origin == volume.Usable && (f.Claim == Unmade || f.Claim == Plain)
		if begins && f.Origin != Found {
			fail("a clone of what is not there, or not allowed")
		}
		if begins && s.Flow == volume.Clone && f.Claim == Plain {
			if f.Busy && !s.Via {
				fail("a worker reads what a pod writes to")
			}
			if s.Via && f.Restored != There {
				fail("a worker reads what is not restored")
			}
			if f.Way == Stream && !f.Served {
				fail("a worker reads from nobody")
			}
		}
		if begins && s.Flow == volume.Restore && !f.OfSnapshot && f.Taken != There {
			fail("a driver restores what is not taken")
		}
		if s.Origin == volume.Misplaced && f.Claim != ByDriver {
			fail("a claim is removed that no driver is to fill")
		}
	})
}
