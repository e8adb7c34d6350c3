package fill

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/task"
)

// Asker asks a worker at an address how far it is.
type Asker func(ctx context.Context, address string) (task.Progress, error)

// A worker that does not answer quickly must not hold up the other volumes; a document of a few numbers is small.
const (
	progressTimeout = time.Second
	progressLimit   = 64 << 10
)

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
func AskOverHTTP() Asker {
	client := &http.Client{Timeout: progressTimeout}
	return func(ctx context.Context, address string) (task.Progress, error) {
		var p task.Progress
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+task.ProgressPath, nil)
		if err != nil {
			return p, fmt.Errorf("ask worker at %s: %w", address, err)
		}
		answer, err := client.Do(req)
		if err != nil {
			return p, fmt.Errorf("ask worker at %s: %w", address, err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return p, fmt.Errorf("ask worker at %s: %s", address, answer.Status)
		}
		if err := json.NewDecoder(io.LimitReader(answer.Body, progressLimit)).Decode(&p); err != nil {
			return p, fmt.Errorf("read progress of worker at %s: %w", address, err)
		}
		return p, nil
	}
}
