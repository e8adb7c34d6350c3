package fill

import (
	"context"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/controller/ask"
	"github.com/berth-vm/berth/internal/task"
)

// Asker asks a worker at an address how far it is.
type Asker func(ctx context.Context, address string) (task.Progress, error)

// progress is how far a running worker is, nil if it does not say: that is no reason to stop.
func (e *Engine) progress(ctx context.Context, pod *corev1.Pod) *task.Progress {
	if pod.Status.PodIP == "" {
		return nil
	}
	p, err := e.ask(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(task.ProgressPort)))
	if err != nil {
		log.FromContext(ctx).V(1).Info("no progress", "worker", pod.Name, "error", err.Error())
		return nil
	}
	return &p
}

// AskOverHTTP asks over the pod network.
func AskOverHTTP() Asker { return ask.At[task.Progress](task.ProgressPath) }
