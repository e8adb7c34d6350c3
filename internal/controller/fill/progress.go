package fill

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/controller/ask"
	"github.com/berth-vm/berth/internal/task"
)

// Asker says how far a worker was when it was asked last, and asks it again.
type Asker func(worker *corev1.Pod) (task.Progress, error)

// progress is how far a running worker is, nil if it does not say: that is no reason to stop.
func (e *Engine) progress(ctx context.Context, pod *corev1.Pod) *task.Progress {
	p, err := e.ask(pod)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no progress", "worker", pod.Name, "error", err.Error())
		return nil
	}
	p.Percent = min(max(p.Percent, 0), 100)
	p.Trouble = p.Trouble[:min(len(p.Trouble), mostWords)]
	return &p
}

// mostWords is what is told of a worker's words at most: they end up in a status that everybody reads often.
const mostWords = 1 << 10

// AskOverHTTP asks over the pod network.
func AskOverHTTP() Asker { return ask.At[task.Progress](task.ProgressPort, task.ProgressPath) }
