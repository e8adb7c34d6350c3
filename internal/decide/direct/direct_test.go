package direct

import (
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	{Count: 3, Set: func(f *Facts, i int) string { f.Asked = Asked(i); return f.Asked.String() }},
	{Count: 3, Set: func(f *Facts, i int) string { f.Kind = Kind(i); return f.Kind.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Block = i == 1; return [...]string{"Filesystem", "Block"}[i] }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Consent = i == 1; return [...]string{"NoConsent", "Consent"}[i] }},
}

func TestDecisions(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		used[p.Rule] = true
		if p.Direct && (!f.Consent || !f.Block || f.Kind != Network || f.Asked == No) {
			t.Errorf("%+v is opened directly", f)
		}
		if p.Reason != "" && f.Asked != Yes {
			t.Errorf("%+v is refused although nobody asked for it", f)
		}
		if f.Asked == Yes && !p.Direct && p.Reason == "" {
			t.Errorf("%+v is mounted although that was not wanted", f)
		}
	})
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("no situation leads to the rule %q", r.name)
		}
	}
	table := enumerate.Table(axes, func(f Facts) string {
		p := Decide(f)
		how := "mount"
		switch {
		case p.Direct:
			how = "direct"
		case p.Reason != "":
			how = "refuse " + string(p.Reason)
		}
		return fmt.Sprintf("%s (%s)", how, p.Rule)
	})
	golden.Equal(t, "testdata/decisions.txt", "# asked kind mode consent -> how\n"+table)
}
