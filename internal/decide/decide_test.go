package decide

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFirst(t *testing.T) {
	rules := []Rule[int, string, string]{
		{"negative", func(n int) bool { return n < 0 }, []string{"negate"}, "below"},
		{"small", func(n int) bool { return n < 10 }, nil, "between"},
		{"never", func(n int) bool { return n < 0 }, []string{"panic"}, "impossible"},
	}
	for n, want := range map[int]Plan[string, string]{
		-1: {"negative", []string{"negate"}, "below"},
		1:  {"small", nil, "between"},
		10: {},
	} {
		if diff := cmp.Diff(want, First(rules, n)); diff != "" {
			t.Errorf("%d (-want +got):\n%s", n, diff)
		}
	}
	if p := First(rules, -1); !p.Does("sleep", "negate") || p.Does("sleep") || p.Does() {
		t.Errorf("%+v does not do what it says", p)
	}
}

func TestNameOfUnknownValue(t *testing.T) {
	if Name(1, "zero", "one") != "one" || Name(2, "zero", "one") != "?" || Name(-1, "zero") != "?" {
		t.Error("a value without a name is a question mark")
	}
}
