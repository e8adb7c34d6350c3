package machine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var copyAxes = []enumerate.Axis[CopyFacts]{
	{Count: int(Whole) + 1, Set: func(f *CopyFacts, i int) string { f.Mode = CopyMode(i); return f.Mode.String() }},
	{Count: int(All) + 1, Set: func(f *CopyFacts, i int) string { f.Word = Word(i); return f.Word.String() }},
	{Count: 2, Set: func(f *CopyFacts, i int) string { f.Holds = i == 1; return either(i, "free", "holds") }},
}

func TestCopyTable(t *testing.T) {
	golden.Equal(t, "testdata/copy.txt", "# mode word record -> reason [actions]\n"+
		enumerate.Table(copyAxes, func(f CopyFacts) string {
			p := Copy(f)
			return fmt.Sprintf("%s %v", p.Reason, p.Do)
		}))
}

func TestCopyInvariants(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(copyAxes, func(f CopyFacts) {
		p := Copy(f)
		used[p.Rule] = true
		if slices.Contains(p.Do, GiveMaster) && (f.Word != All || f.Mode == OnWrite) {
			t.Errorf("a master is given back that the guest may read: %+v -> %+v", f, p)
		}
		if p.Reason == CopyIndependent && f.Word != All && (f.Holds || f.Word == Part) {
			t.Errorf("a copy is called independent on nobody's word: %+v -> %+v", f, p)
		}
	})
	for _, r := range copyRules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
	if used[""] {
		t.Error("some situation has no rule")
	}
}
