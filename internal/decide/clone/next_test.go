package clone

import (
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func pick[E ~int](set func(*Facts, E), names ...string) enumerate.Axis[Facts] {
	return enumerate.Axis[Facts]{Count: len(names), Set: func(f *Facts, i int) string { set(f, E(i)); return names[i] }}
}

func whether(name string, set func(*Facts, bool)) enumerate.Axis[Facts] {
	return enumerate.Axis[Facts]{Count: 2, Set: func(f *Facts, i int) string {
		set(f, i == 1)
		return []string{"not-" + name, name}[i]
	}}
}

var ways = []Strategy{CSIClone, Snapshot, Copy, Stream, Impossible}

// axes are the facts; their order makes the printed table short.
var axes = []enumerate.Axis[Facts]{
	pick(func(f *Facts, v Claim) { f.Claim = v }, "Unmade", "Vague", "Plain", "Copied", "Unserved", "Superseded", "ByDriver", "Delivered", "Settled"),
	pick(func(f *Facts, v Origin) { f.Origin = v }, "Found", "Unresolved", "Forbidden", "Missing", "Unfilled"),
	{Count: len(ways), Set: func(f *Facts, i int) string { f.Way = ways[i]; return or(string(ways[i]), "impossible") }},
	whether("lost", func(f *Facts, v bool) { f.Lost = v }),
	pick(func(f *Facts, v Spot) { f.Spot = v }, "Anywhere", "Elsewhere", "Beside"),
	whether("from-snapshot", func(f *Facts, v bool) { f.FromSnapshot = v }),
	whether("grown", func(f *Facts, v bool) { f.Grown = v }),
	whether("of-snapshot", func(f *Facts, v bool) { f.OfSnapshot = v }),
	whether("freezes", func(f *Facts, v bool) { f.Freezes = v }),
	whether("busy", func(f *Facts, v bool) { f.Busy = v }),
	pick(func(f *Facts, v Aid) { f.Taken = v }, "untaken", "taking", "taken"),
	pick(func(f *Facts, v Aid) { f.Restored = v }, "unrestored", "restoring", "restored"),
	whether("served", func(f *Facts, v bool) { f.Served = v }),
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
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) { used[Next(f).Rule] = true })
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

// TestStepsAreSafe: nothing is read that is in use or is not there, and nobody's right is taken for granted.
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
