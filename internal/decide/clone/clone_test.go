package clone

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/testing/golden"
)

// every calls do with all combinations of what matters: yes or no for each fact, and each wish.
func every(do func(Source, Target, Classes)) {
	for bits := range 1 << 12 {
		on := func(n int) bool { return bits&(1<<n) != 0 }
		for _, wanted := range []Strategy{Impossible, CSIClone, Snapshot, Copy} {
			s := Source{IsSnapshot: on(0), Namespace: "a", Provisioner: "csi.example", Busy: on(1)}
			t := Target{Namespace: "a", Provisioner: "csi.example", Block: on(2), Larger: on(3), Made: on(4), Apart: on(5)}
			c := Classes{Wanted: wanted, Driver: on(6), Expands: on(7)}
			if on(8) {
				t.Namespace = "b"
			}
			if on(9) {
				c.SnapshotClass = "snap"
			}
			if on(10) {
				t.Elsewhere = "the source is on node x, where pod y cannot run"
			}
			if on(11) {
				c.RestoreClass = "fast"
			}
			do(s, t, c)
		}
	}
}

func TestChoicesAreSafe(t *testing.T) {
	every(func(s Source, tg Target, c Classes) {
		got, why := Choose(s, tg, c)
		fail := func(what string) { t.Errorf("%s: %+v %+v %+v -> %s (%s)", what, s, tg, c, got, why) }
		if why == "" {
			fail("no reason")
		}
		if (got == CSIClone || got == Snapshot) && (!c.Driver || s.Namespace != tg.Namespace || s.Block != tg.Block || tg.Made ||
			tg.Elsewhere != "") {
			fail("a driver asked for what it cannot do")
		}
		if got == Snapshot && !s.IsSnapshot && c.SnapshotClass == "" {
			fail("a snapshot without a class")
		}
		if got == CSIClone && s.Busy {
			fail("a volume in use cloned under its writer")
		}
		if got == Copy && (s.Namespace != tg.Namespace || tg.Apart) {
			fail("one pod cannot have both claims")
		}
		if got == Impossible && (!s.IsSnapshot || c.RestoreClass != "") {
			fail("what can be read from can always be copied")
		}
	})
}

// TestChoices pins the reasons, because users read them.
func TestChoices(t *testing.T) {
	seen := map[string]bool{}
	var lines []string
	every(func(s Source, tg Target, c Classes) {
		got, why := Choose(s, tg, c)
		kind := "claim"
		if s.IsSnapshot {
			kind = "snapshot"
		}
		line := fmt.Sprintf("%s -> %s: %s", kind, or(string(got), "impossible"), why)
		if !seen[line] {
			seen[line] = true
			lines = append(lines, line)
		}
	})
	got := strings.Join(lines, "\n") + "\n"
	golden.Equal(t, "testdata/choices.txt", got)
}

// TestAsked: what the claim asks for is done if it can be, in words that say who asked; and only what is dearer is a fallback.
func TestAsked(t *testing.T) {
	s, target := Source{Namespace: "a", Provisioner: "csi.example"}, Target{Namespace: "a", Provisioner: "csi.example"}
	for name, c := range map[string]struct {
		classes Classes
		busy    bool
		want    Strategy
		why     string
		back    bool
	}{
		"csi-clone":              {Classes{Wanted: CSIClone, Asked: true, Driver: true}, false, CSIClone, "the claim asks for it", false},
		"copy":                   {Classes{Wanted: Copy, Asked: true, Driver: true, SnapshotClass: "snap"}, false, Copy, "the claim asks for copying", false},
		"snapshot":               {Classes{Wanted: Snapshot, Asked: true, Driver: true, SnapshotClass: "snap"}, false, Snapshot, "class snap", false},
		"a snapshot in vain":     {Classes{Wanted: Snapshot, Asked: true, Driver: true}, false, Copy, "NoVolumeSnapshotClass", true},
		"csi-clone of one used":  {Classes{Wanted: CSIClone, Asked: true, Driver: true, SnapshotClass: "snap"}, true, Snapshot, "in use", true},
		"nothing":                {Classes{Driver: true, SnapshotClass: "snap"}, false, Snapshot, "class snap", false},
		"nothing, and no driver": {Classes{}, false, Copy, "NoProvisionerMatch", true},
	} {
		s.Busy = c.busy
		got, why := Choose(s, target, c.classes)
		if back := FellBack(got, s, c.classes); got != c.want || !strings.Contains(why, c.why) || back != c.back {
			t.Errorf("%s: %s (%s), a fallback: %t", name, got, why, back)
		}
	}
	if Stream.Known() != Copy || Snapshot.Known() != Snapshot {
		t.Error("clients know csi-clone, snapshot and copy")
	}
}

func TestProvisionersMustMatch(t *testing.T) {
	s := Source{Namespace: "a", Provisioner: "x.example"}
	got, why := Choose(s, Target{Namespace: "a", Provisioner: "y.example"}, Classes{Driver: true, SnapshotClass: "snap"})
	if got != Copy || !strings.Contains(why, "x.example and y.example") {
		t.Errorf("got %s: %s", got, why)
	}
}
