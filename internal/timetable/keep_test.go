package timetable

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"
)

// hours returns runs at these hours after the begin of a Monday: "f" a full one, "i" an increment, "x" one that failed, "-" one that goes on.
func hours(kinds string, every time.Duration) []Run {
	var out []Run
	for i, k := range kinds {
		out = append(out, Run{At: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * every), Full: k == 'f',
			End: map[rune]End{'f': Good, 'i': Good, 'x': Bad, '-': Unfinished}[k]})
	}
	return out
}

func TestSurplus(t *testing.T) {
	day := 24 * time.Hour
	for name, row := range map[string]struct {
		runs  []Run
		keep  *Keep
		zone  string
		wants string
	}{
		"no rules":                              {hours("ffff", day), nil, "UTC", "[]"},
		"last two":                              {hours("ffff", day), &Keep{Last: 2}, "UTC", "[0 1]"},
		"a chain is kept as a whole":            {hours("fiifii", day), &Keep{Last: 4}, "UTC", "[]"},
		"a chain is removed as a whole":         {hours("fiifii", day), &Keep{Last: 3}, "UTC", "[0 1 2]"},
		"the last good chain is always kept":    {hours("fiixx", day), &Keep{Daily: 0}, "UTC", "[]"},
		"failures keep no place":                {hours("ffxf", day), &Keep{Last: 2}, "UTC", "[0]"},
		"the last three failures are kept":      {hours("xxxxfx", day), nil, "UTC", "[0 1]"},
		"what goes on is kept":                  {hours("ff-", day), &Keep{Last: 1}, "UTC", "[0]"},
		"the last of each day":                  {hours("ffffffff", 12*time.Hour), &Keep{Daily: 3}, "UTC", "[0 1 2 4 6]"},
		"the last of each day, in its zone":     {hours("ffffffff", 12*time.Hour), &Keep{Daily: 3}, "America/New_York", "[0 1 2 3 5]"},
		"days and weeks":                        {hours("fffffffffffffff", day), &Keep{Daily: 2, Weekly: 3}, "UTC", "[0 1 2 3 4 5 7 8 9 10 11 12]"},
		"increments whose full one was deleted": {hours("iifi", day), &Keep{Last: 1}, "UTC", "[0 1]"},
		"a failure inside of a chain":           {hours("fxifi", day), &Keep{Last: 1}, "UTC", "[0 2]"},
	} {
		zone, err := time.LoadLocation(row.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(Surplus(row.runs, row.keep, zone)); got != row.wants && (got != "[]" || row.wants != "[]") {
			t.Errorf("%s: %s, want %s", name, got, row.wants)
		}
	}
}

// TestNoChainIsCut: of ten thousand histories, thinned again and again while they grow, no increment is left without what it lies over, the last good chain is always
// there, what a rule keeps is there, and what was kept once is not more than was there.
func TestNoChainIsCut(t *testing.T) {
	for seed := range 10000 {
		random := rand.New(rand.NewSource(int64(seed)))
		rules := &Keep{Last: random.Intn(4), Hourly: random.Intn(4), Daily: random.Intn(4), Weekly: random.Intn(3), Monthly: random.Intn(3)}
		type made struct {
			Run
			id, over int
		}
		var history []made
		now, newest := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), -1
		for id := range 1 + random.Intn(30) {
			now = now.Add(time.Duration(1+random.Intn(40)) * time.Hour)
			m := made{Run{At: now, End: []End{Good, Good, Good, Bad}[random.Intn(4)]}, id, -1}
			m.Full = newest < 0 || random.Intn(4) == 0
			if !m.Full {
				m.over = newest
			}
			if m.End == Good {
				newest = id
			}
			history = append(history, m)
			var runs []Run
			for _, h := range history {
				runs = append(runs, h.Run)
			}
			surplus := Surplus(runs, rules, time.UTC)
			kept := rules.kept(runs, time.UTC)
			for _, i := range surplus {
				if kept[i] || history[i].id == newest {
					t.Fatalf("seed %d: %d is removed and was to be kept", seed, i)
				}
			}
			var left []made
			for i, h := range history {
				if !slices.Contains(surplus, i) {
					left = append(left, h)
				}
			}
			history = left
			for _, h := range history {
				if h.End == Good && h.over >= 0 && !slices.ContainsFunc(history, func(o made) bool { return o.id == h.over }) {
					t.Fatalf("seed %d: increment %d is left without %d", seed, h.id, h.over)
				}
			}
		}
	}
}

func TestIncrements(t *testing.T) {
	for kinds, want := range map[string]int{"": -1, "x": -1, "f": 0, "fii": 2, "fifx": 0, "fixi": 2, "fi-": 1} {
		if got := Increments(hours(kinds, time.Hour)); got != want {
			t.Errorf("%q: %d, want %d", kinds, got, want)
		}
	}
}
