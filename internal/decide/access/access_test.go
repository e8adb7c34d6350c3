package access

import (
	"fmt"
	"strings"
	"testing"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var modes = []accessv1.Mode{accessv1.WriteExclusive, accessv1.WriteShared, accessv1.ReadShared}

func TestPairs(t *testing.T) {
	var b strings.Builder
	b.WriteString("# has wants -> together\n")
	for _, has := range append(modes, "unknown", "") {
		for _, wants := range append(modes, "unknown", "") {
			fmt.Fprintf(&b, "%q %q -> %v\n", has, wants, Compatible(has, wants))
			if Compatible(has, wants) != Compatible(wants, has) {
				t.Errorf("%s and %s: who comes first decides whether both may have it", has, wants)
			}
			writes := func(m accessv1.Mode) bool { return m != accessv1.ReadShared }
			if Compatible(has, wants) && (writes(has) || writes(wants)) && (has != accessv1.WriteShared || wants != accessv1.WriteShared) {
				t.Errorf("%s and %s: a writer beside somebody who does not expect one", has, wants)
			}
		}
	}
	golden.Equal(t, "testdata/pairs.txt", b.String())
}
