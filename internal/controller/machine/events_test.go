package machine

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// told keeps events by what they are about.
type told map[string][]string

func (e told) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	key := fmt.Sprintf("%T", about)
	e[key] = append(e[key], kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

// mostEvents is how many events one start of a machine may leave, on the machine and on its instance together.
const mostEvents = 12

// TestFewEvents: a machine that starts, however its controller is disturbed, leaves a dozen events at most, and none twice in a row.
func TestFewEvents(t *testing.T) {
	for _, sc := range scenarios() {
		if len(sc.asks) > 0 || len(sc.ends) > 0 {
			continue // more than one start
		}
		for _, kind := range append([]faults.Kind{""}, faults.Kinds...) {
			w, events := newWorld(t, sc), told{}
			w.control(cluster.New(w.faults.Client(w.api.(client.WithWatch), w.admit), events, w.clock))
			if kind != "" {
				w.faults.At, w.faults.Kind = faults.Every, kind
			}
			w.run()
			total := 0
			for about, list := range events {
				total += len(list)
				for i := 1; i < len(list); i++ {
					if list[i] == list[i-1] {
						t.Errorf("%s %s: %s twice in a row: %s", sc.name, kind, about, list[i])
					}
				}
			}
			if total > mostEvents || total == 0 && kind == "" {
				t.Errorf("%s %s: %d events\n%s", sc.name, kind, total, events)
			}
		}
	}
}

func (e told) String() string {
	var b strings.Builder
	for about, list := range e {
		fmt.Fprintf(&b, "%s\n  %s\n", about, strings.Join(list, "\n  "))
	}
	return b.String()
}
