// Package enumerate goes through every combination of a decision's facts, for the tests of the packages beside it. It
// does not know what is decided.
package enumerate

import "strings"

// Axis is one fact of F and how many values it has. Set gives it value i and says its name.
type Axis[F any] struct {
	Count int
	Set   func(f *F, i int) string
}

// Every calls do with all combinations of the axes.
func Every[F any](axes []Axis[F], do func(F)) {
	var f F
	every(f, axes, do)
}

func every[F any](f F, axes []Axis[F], do func(F)) {
	if len(axes) == 0 {
		do(f)
		return
	}
	for i := range axes[0].Count {
		axes[0].Set(&f, i)
		every(f, axes[1:], do)
	}
}

// Table writes the decisions as lines, one for each group of situations that is decided alike: a|b is either value of a fact, * is
// any. A person reviews the table when behaviour changes, so values that lead to the same lines share them.
func Table[F any](axes []Axis[F], decide func(F) string) string {
	var f F
	return strings.Join(table(f, axes, decide), "\n") + "\n"
}

func table[F any](f F, axes []Axis[F], decide func(F) string) []string {
	if len(axes) == 0 {
		return []string{"-> " + decide(f)}
	}
	var order []string // of the distinct subtrees
	values := map[string][]string{}
	for i := range axes[0].Count {
		word := axes[0].Set(&f, i)
		below := strings.Join(table(f, axes[1:], decide), "\n")
		if values[below] == nil {
			order = append(order, below)
		}
		values[below] = append(values[below], word)
	}
	var lines []string
	for _, below := range order {
		words := strings.Join(values[below], "|")
		if len(order) == 1 {
			words = "*"
		}
		for line := range strings.SplitSeq(below, "\n") {
			lines = append(lines, words+" "+line)
		}
	}
	return lines
}
