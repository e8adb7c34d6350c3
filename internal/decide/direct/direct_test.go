package direct

import (
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Enum(No, func(f *Facts) *Asked { return &f.Asked }),
	enumerate.Enum(Unopenable, func(f *Facts) *Kind { return &f.Kind }),
	enumerate.Flag("Filesystem", "Block", func(f *Facts) *bool { return &f.Block }),
	enumerate.Flag("NoLogin", "Login", func(f *Facts) *bool { return &f.Login }),
	enumerate.Enum(Refused, func(f *Facts) *Consent { return &f.Consent }),
}

func TestDecisions(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		allowed := f.Consent == Given || f.Consent == Silent && !f.Login && f.Asked == Yes
		if p.Direct && (!allowed || !f.Block || f.Kind != Network || f.Asked == No) {
			t.Errorf("%+v is opened directly", f)
		}
		if p.Reason != "" && f.Asked != Yes {
			t.Errorf("%+v is refused although nobody asked for it", f)
		}
		if f.Asked == Yes && !p.Direct && p.Reason == "" {
			t.Errorf("%+v is mounted although that was not wanted", f)
		}
	})
	enumerate.Rules(t, axes, rules)
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
