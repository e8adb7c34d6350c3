package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/testing/faults"
)

// A run in which one write is disturbed is the undisturbed one until then, and the undisturbed one again as soon as the world is as it was at
// a round of that, times aside, or has come to rest where that did. So it is begun at the round of the write and ended there: that is what
// makes it cheap to disturb each write alone. What delays do shows a run in which every write is disturbed, which is not cut short.

// tape is the recording of a world that runs undisturbed.
type tape struct {
	rounds []frozen // as each began
	rests  []string // the outcome each time it came to rest: before the first ask, and after each
}

// frozen is a world between two rounds.
type frozen struct {
	is      world
	at      time.Time
	objects []client.Object
	keyed   map[any]any // what the controller remembers
	taken   map[types.UID]bool
	text    string
}

// keepTape keeps the world as it is now.
func (w *world) keepTape() {
	if w.taped == nil {
		return
	}
	w.taped.rounds = append(w.taped.rounds, w.freeze())
}

// freeze is the world as it is now.
func (w *world) freeze() frozen {
	f := frozen{is: *w, at: w.clock.Now(), keyed: map[any]any{}, taken: maps.Clone(w.r.Migration.Places.Taken)}
	f.is.data = w.data.clone()
	w.r.Migration.Keyed.Done.Range(func(k, v any) bool { f.keyed[k] = v; return true })
	for gvk := range scheme().AllKnownTypes() {
		list, err := scheme().New(gvk)
		w.must(err)
		of, ok := list.(client.ObjectList)
		if !ok || !strings.HasSuffix(gvk.Kind, "List") {
			continue
		}
		w.must(w.api.List(context.Background(), of))
		w.must(meta.EachListItem(of, func(o runtime.Object) error {
			f.objects = append(f.objects, o.DeepCopyObject().(client.Object))
			return nil
		}))
	}
	f.text = f.describe(w)
	return f
}

var moment = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*Z"`)

// describe says everything that the next steps depend on: all but times and the versions of objects.
func (f *frozen) describe(w *world) string {
	lines := []string{fmt.Sprint(w.asked, w.guests, w.keeps, w.data, f.keyed, f.taken)}
	for _, o := range f.objects {
		version := o.GetResourceVersion()
		o.SetResourceVersion("")
		text, err := json.Marshal(o)
		w.must(err)
		o.SetResourceVersion(version)
		lines = append(lines, fmt.Sprintf("%T %s", o, moment.ReplaceAll(text, []byte(`"then"`))))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// joins: a world that was disturbed is as the undisturbed one was at one of its rounds, and continues as that did.
func (w *world) joins() bool {
	if w.follows == nil || w.faults.Writes < w.faults.At {
		return false
	}
	now := w.freeze().text
	w.joined = slices.ContainsFunc(w.follows.rounds, func(f frozen) bool { return f.text == now })
	return w.joined
}

// rest keeps where the world came to rest.
func (w *world) rest() {
	if w.taped != nil {
		w.taped.rests = append(w.taped.rests, w.outcome())
	}
}

// thaw is a world that continues from there.
func (f *frozen) thaw() *world {
	w := f.is
	w.taped, w.clock, w.events = nil, clocktest.NewFakePassiveClock(f.at), events.NewFakeRecorder(10000)
	w.data = f.is.data.clone()
	objects := make([]client.Object, len(f.objects))
	for i, o := range f.objects {
		objects[i] = o.DeepCopyObject().(client.Object)
	}
	next, options := &w, f.is.r.Read.Options
	next.serve(objects)
	next.r.Read.Options, next.r.Migration.Places.Taken = options, maps.Clone(f.taken)
	for k, v := range f.keyed {
		next.r.Migration.Keyed.Done.Store(k, v)
	}
	return next
}

func (c contents) clone() contents {
	return contents{newest: maps.Clone(c.newest), on: maps.Clone(c.on)}
}

// disturbed is how the world ends otherwise if one write is disturbed; empty if it does not.
func (w *world) disturbed(write int, kind faults.Kind) string {
	at := 0
	for i, f := range w.taped.rounds {
		if f.is.faults.Writes < write {
			at = i
		}
	}
	d := w.taped.rounds[at].thaw()
	d.faults.At, d.faults.Kind, d.follows = write, kind, w.taped
	d.settle()
	if d.joined || d.outcome() == w.taped.rests[d.asked] {
		return ""
	}
	d.follows = nil
	d.run()
	return cmp.Diff(w.taped.rests[len(w.taped.rests)-1], d.outcome())
}
