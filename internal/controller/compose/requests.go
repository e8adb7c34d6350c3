package compose

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// Asked returns the requests that are still open: a stop is done when the instance it was meant for is gone.
func (w *Machine) Asked() []kubevirt.StateChangeRequest {
	var out []kubevirt.StateChangeRequest
	for _, q := range w.Object.Status.StateChangeRequests {
		stale := q.Action == kubevirt.StopRequest && (w.Instance == nil || q.UID != nil && *q.UID != w.Instance.Object.UID)
		if !stale {
			out = append(out, q)
		}
	}
	return out
}

// Request is the oldest request; a stop with a start behind it is a restart.
func (w *Machine) Request() machine.Request {
	q := w.Asked()
	switch {
	case len(q) == 0:
		return machine.NoRequest
	case q[0].Action == kubevirt.StartRequest && q[0].Paused():
		return machine.StartPausedAsked
	case q[0].Action == kubevirt.StartRequest:
		return machine.StartAsked
	case len(q) > 1 && q[1].Action == kubevirt.StartRequest:
		return machine.RestartAsked
	}
	return machine.StopAsked
}
