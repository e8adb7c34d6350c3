package machine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var copyAxes = []enumerate.Axis[CopyFacts]{
	enumerate.Enum(Whole, func(f *CopyFacts) *CopyMode { return &f.Mode }),
	enumerate.Enum(All, func(f *CopyFacts) *Word { return &f.Word }),
	enumerate.Flag("free", "holds", func(f *CopyFacts) *bool { return &f.Holds }),
}

func TestCopyTable(t *testing.T) {
	golden.Equal(t, "testdata/copy.txt", "# mode word record -> reason [actions]\n"+
		enumerate.Table(copyAxes, func(f CopyFacts) string {
			p := Copy(f)
			return fmt.Sprintf("%s %v", p.Reason, p.Do)
		}))
}

func TestCopyInvariants(t *testing.T) {
	enumerate.Every(copyAxes, func(f CopyFacts) {
		p := Copy(f)
		if slices.Contains(p.Do, GiveMaster) && (f.Word != All || f.Mode == OnWrite) {
			t.Errorf("a master is given back that the guest may read: %+v -> %+v", f, p)
		}
		if p.Reason == CopyIndependent && f.Word != All && (f.Holds || f.Word == Part) {
			t.Errorf("a copy is called independent on nobody's word: %+v -> %+v", f, p)
		}
	})
	enumerate.Rules(t, copyAxes, copyRules)
}
