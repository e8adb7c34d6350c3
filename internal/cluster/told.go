package cluster

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// told is the reason of the last event about each object, or what it said, by its UID: the cache hears later of a status that was written, and
// whoever looks again before that sees the same change again.
type told struct {
	mu     sync.Mutex
	reason map[types.UID]string
}

// mostTold is how many objects are remembered. To forget one costs an event that is told twice.
const mostTold = 20000

// again says whether the last event about the object had that reason, and remembers it.
func (t *told) again(uid types.UID, reason string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reason[uid] == reason {
		return true
	}
	if t.reason == nil || len(t.reason) >= mostTold {
		t.reason = map[types.UID]string{}
	}
	t.reason[uid] = reason
	return false
}

// Turn tells whoever watches obj that its reason is another one now. A reason that was the last to be told is not told again.
func (w *Writer) Turn(obj client.Object, kind, reason, message string) {
	if !w.told.again(obj.GetUID(), reason) {
		w.Event(obj, kind, reason, message)
	}
}
