// Package worker reads a worker's report when it has ended, its progress while it runs, and the kubelet's message if it does not
// start. It does not know what the worker copies, and decides nothing.
package worker

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/task"
)

// Asker returns a worker's last known progress, and asks for a new one.
type Asker func(worker *corev1.Pod) (task.Progress, error)

// AskOverHTTP asks over the pod network.
func AskOverHTTP() Asker { return probe.At[task.Progress](task.ProgressPort, task.ProgressPath) }

// Progress returns the progress of a running worker, nil if it does not answer: that is no reason to stop.
func (a Asker) Progress(ctx context.Context, pod *corev1.Pod) *task.Progress {
	p, err := a(pod)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no progress", "worker", pod.Name, "error", err.Error())
		return nil
	}
	p.Percent = min(max(p.Percent, 0), 100)
	p.Trouble = p.Trouble[:min(len(p.Trouble), mostWords)]
	return &p
}

// mostWords is the most that is shown of a worker's message: it ends up in a status that is read often.
const mostWords = 1 << 10

// Report returns the report of a worker that has ended; nil if there is none, as of a worker that was evicted or killed.
func Report(pod *corev1.Pod) *task.Report {
	ended := pods.Terminated(pod)
	if ended == nil {
		return nil
	}
	var r task.Report
	if err := json.Unmarshal([]byte(ended.Message), &r); err != nil || r.Version != task.Version {
		return nil
	}
	return &r
}

// Patience is how long a worker may take to start before its events are read. A missing Secret, for example, is reported only in an event.
const Patience = 15 * time.Second

// Trouble returns the last warning about an object that is pending: what keeps a worker from starting, or a claim from getting a
// volume. Empty if there is none, or if there has not been time enough to worry.
func Trouble(ctx context.Context, live client.Reader, obj client.Object, now time.Time) string {
	if now.Sub(obj.GetCreationTimestamp().Time) < Patience {
		return ""
	}
	var events corev1.EventList
	err := live.List(ctx, &events, client.InNamespace(obj.GetNamespace()), client.MatchingFields{
		"involvedObject.uid": string(obj.GetUID()), "type": corev1.EventTypeWarning,
	})
	if err != nil {
		log.FromContext(ctx).V(1).Info("no events", "object", obj.GetName(), "error", err.Error())
		return ""
	}
	last := corev1.Event{}
	for _, e := range events.Items {
		if !e.LastTimestamp.Before(&last.LastTimestamp) {
			last = e
		}
	}
	return last.Message
}
