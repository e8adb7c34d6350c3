package enumerate

import (
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/decide"
)

// Enum is the axis of an enumeration from zero to last.
func Enum[F any, E interface {
	~int
	fmt.Stringer
}](last E, field func(*F) *E) Axis[F] {
	return Axis[F]{Count: int(last) + 1, Set: func(f *F, i int) string {
		*field(f) = E(i)
		return E(i).String()
	}}
}

// Named is the axis of an enumeration whose values have these names.
func Named[F any, E ~int](field func(*F) *E, names ...string) Axis[F] {
	return Axis[F]{Count: len(names), Set: func(f *F, i int) string {
		*field(f) = E(i)
		return names[i]
	}}
}

// Flag is the axis of a fact that does not hold, or does.
func Flag[F any](no, yes string, field func(*F) *bool) Axis[F] {
	return Axis[F]{Count: 2, Set: func(f *F, i int) string {
		*field(f) = i == 1
		return []string{no, yes}[i]
	}}
}

// Line is a plan as a line of a table.
func Line[A comparable, S any](p decide.Plan[A, S]) string {
	return fmt.Sprintf("%v %v", p.State, p.Do)
}

// Rules fails the test unless some rule holds in each situation and each rule is the first that holds in one.
func Rules[F any, A comparable, S any](t *testing.T, axes []Axis[F], rules []decide.Rule[F, A, S]) {
	t.Helper()
	used := map[string]bool{}
	Every(axes, func(f F) {
		rule := decide.First(rules, f).Rule
		if rule == "" {
			t.Errorf("no rule for %+v", f)
		}
		used[rule] = true
	})
	for _, r := range rules {
		if !used[r.Name] {
			t.Errorf("no situation leads to rule %q", r.Name)
		}
	}
}
