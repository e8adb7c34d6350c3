package timetable

import (
	"fmt"
	"slices"
	"time"
)

// End is how something that a schedule made ended.
type End int

// The ends.
const (
	Unfinished End = iota
	Good
	Bad
)

// Run is one thing that a schedule made of a machine.
type Run struct {
	At   time.Time // that it was scheduled for
	End  End
	Full bool // it does not lie over the one before; true of every snapshot
}

// Keep is what is kept. Of the last Hourly hours that have a good one the last one is kept, and so on.
type Keep struct {
	Last, Hourly, Daily, Weekly, Monthly int
}

// lastBad is how many of the last failures are kept, for people to read.
const lastBad = 3

// Chains returns the indexes of good runs in chains: a full one and those that lie over it. all is in the order of its moments.
func Chains(all []Run) [][]int {
	var out [][]int
	for i, r := range all {
		switch {
		case r.End != Good:
		case r.Full || len(out) == 0:
			out = append(out, []int{i})
		default:
			out[len(out)-1] = append(out[len(out)-1], i)
		}
	}
	return out
}

// Increments is how many runs lie over the last full one; -1: there is no good run.
func Increments(all []Run) int {
	chains := Chains(all)
	if len(chains) == 0 {
		return -1
	}
	return len(chains[len(chains)-1]) - 1
}

// Surplus returns the indexes of what is not kept, in the order of all, which is that of the moments. nil rules keep all that is good. A chain is kept as a whole if one of its
// runs is kept, the last one always is, and what has not ended is kept.
func Surplus(all []Run, rules *Keep, zone *time.Location) []int {
	var out []int
	if rules != nil {
		kept, chains := rules.kept(all, zone), Chains(all)
		for i, c := range chains {
			wanted := i == len(chains)-1 || slices.ContainsFunc(c, func(at int) bool { return kept[at] })
			if !wanted {
				out = append(out, c...)
			}
		}
	}
	bad := 0
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].End != Bad {
			continue
		}
		if bad++; bad > lastBad {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

// kept returns which good runs the rules keep, each by itself.
func (k Keep) kept(all []Run, zone *time.Location) map[int]bool {
	kept := map[int]bool{}
	for _, rule := range []struct {
		most int
		same func(time.Time) string
	}{
		{k.Last, func(t time.Time) string { return t.UTC().Format(time.RFC3339) }},
		{k.Hourly, func(t time.Time) string { return t.In(zone).Format("2006-01-02 15 -0700") }},
		{k.Daily, func(t time.Time) string { return t.In(zone).Format(time.DateOnly) }},
		{k.Weekly, func(t time.Time) string {
			year, week := t.In(zone).ISOWeek()
			return fmt.Sprint(year, "-", week)
		}},
		{k.Monthly, func(t time.Time) string { return t.In(zone).Format("2006-01") }},
	} {
		left, last := rule.most, ""
		for i := len(all) - 1; i >= 0 && left > 0; i-- {
			if all[i].End != Good {
				continue
			}
			if in := rule.same(all[i].At); in != last {
				kept[i], last = true, in
				left--
			}
		}
	}
	return kept
}
