package cluster

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lastEvents remembers the reason or message of the last event about each object, by its UID: the cache lags behind a status that was
// written, and a reconcile before it has caught up would see the same change again.
type lastEvents struct {
	mu     sync.Mutex
	reason map[types.UID]string
}

// mostTold is how many objects are remembered. If one is forgotten, an event may be sent twice.
const mostTold = 20000

// again reports whether the last event about the object had that reason, and remembers it.
func (t *lastEvents) again(uid types.UID, reason string) bool {
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

// Turn tells those who watch obj that its reason is another one now. A reason that was the last to be told is not told again.
func (w *Writer) Turn(obj client.Object, kind, reason, message string) {
	if !w.told.again(obj.GetUID(), reason) {
		w.Event(obj, kind, reason, message)
	}
}
