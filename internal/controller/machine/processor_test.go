package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/state"
)

// TestProcessors: a guest stays on its node because of its processor only if every other node says that it has another.
func TestProcessors(t *testing.T) {
	node := func(name string, labels map[string]string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	is := func(id string) map[string]string {
		return map[string]string{observed.LabelVendor: "Intel", observed.LabelFamily: "6", observed.LabelID: id}
	}
	can := func(model string) map[string]string { return map[string]string{observed.LabelModel + model: "true"} }
	for name, c := range map[string]struct {
		model string
		nodes []corev1.Node
		want  state.FixedCause
	}{
		"nobody says":                 {"host-passthrough", []corev1.Node{node("a", nil), node("b", nil)}, ""},
		"the same":                    {"host-passthrough", []corev1.Node{node("a", is("85")), node("b", is("79")), node("c", is("85"))}, ""},
		"one does not say":            {"host-passthrough", []corev1.Node{node("a", is("85")), node("b", is("79")), node("c", nil)}, ""},
		"others":                      {"host-passthrough", []corev1.Node{node("a", is("85")), node("b", is("79")), node("c", is("61"))}, state.CauseCPUHost},
		"its own does not say":        {"host-passthrough", []corev1.Node{node("a", nil), node("b", is("79"))}, ""},
		"alone":                       {"host-passthrough", []corev1.Node{node("a", is("85"))}, ""},
		"a model that another has":    {"Haswell", []corev1.Node{node("a", can("Haswell")), node("b", can("Haswell"))}, ""},
		"a model that no other has":   {"Haswell", []corev1.Node{node("a", can("Haswell")), node("b", can("Penryn"))}, state.CauseCPU},
		"a model, and nobody says":    {"Haswell", []corev1.Node{node("a", can("Haswell")), node("b", nil)}, ""},
		"a model, and a node is bare": {"Haswell", []corev1.Node{node("a", can("Haswell")), node("b", can("Penryn")), node("c", nil)}, ""},
	} {
		if got, _ := observed.Bound(c.model, "a", c.nodes); got != c.want {
			t.Errorf("%s: %q instead of %q", name, got, c.want)
		}
	}
}
