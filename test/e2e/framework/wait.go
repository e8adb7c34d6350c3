//go:build e2e

package framework

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const interval = 250 * time.Millisecond

// steady is the pace of waits whose limit does not depend on the machine.
func steady() float64 { return 1 }

// poll calls done until it returns true, and reports whether it did in time; slower says by how much the limit is longer now. A call that has begun is not cut short by the limit, so
// that what it saw last is about the cluster and not about the clock.
func poll(ctx context.Context, limit time.Duration, slower func() float64, done func(context.Context) bool) bool {
	left := patience{limit, time.Now()}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if call(ctx, done) {
			return true
		}
		select {
		case <-tick.C:
			if left.over(time.Now(), slower()) {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// callPatience bounds one question to the API server.
const callPatience = 30 * time.Second

func call(ctx context.Context, done func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	return done(ctx)
}

// Wait calls done until it is true, and fails the test with what it waited for and what done saw last if that takes too long.
func (e *Env) Wait(what string, limit time.Duration, done func(ctx context.Context) (ok bool, seen string)) {
	e.T.Helper()
	last := ""
	if !poll(e.Context(), limit, slowness, func(ctx context.Context) bool {
		ok, seen := done(ctx)
		if seen != "" {
			last = seen
		}
		return ok
	}) {
		e.T.Fatalf("waited %s for %s; last seen: %s", limit, what, last)
	}
}

// Stays fails the test if the condition becomes false within that time. It shows that something does not happen, so keep the time short.
func (e *Env) Stays(what string, limit time.Duration, holds func(ctx context.Context) (ok bool, seen string)) {
	e.T.Helper()
	seen := ""
	if poll(e.Context(), limit, steady, func(ctx context.Context) bool {
		var ok bool
		ok, seen = holds(ctx)
		return !ok
	}) {
		e.T.Fatalf("%s: not any more: %s", what, seen)
	}
}

// WaitEvent waits for an event about an object of that name whose message the predicate accepts, and returns the message.
func (e *Env) WaitEvent(object string, limit time.Duration, accept func(reason, message string) bool) string {
	e.T.Helper()
	found := ""
	e.Wait("an event about "+object, limit, func(ctx context.Context) (bool, string) {
		list, err := e.Client.CoreV1().Events(e.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
		if err != nil {
			return false, err.Error()
		}
		seen := "no events"
		for _, ev := range list.Items {
			seen = ev.Reason + ": " + ev.Message
			if accept(ev.Reason, ev.Message) {
				found = ev.Message
				return true, seen
			}
		}
		return false, seen
	})
	return found
}

// ReadyNodes are the names of the nodes that are Ready and take pods.
func (e *Env) ReadyNodes() []string {
	e.T.Helper()
	list, err := e.Client.CoreV1().Nodes().List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.T.Fatalf("list nodes: %v", err)
	}
	var names []string
	for _, n := range list.Items {
		if NodeReady(&n) && !n.Spec.Unschedulable {
			names = append(names, n.Name)
		}
	}
	return names
}

// NodeReady is true if the node's Ready condition is.
func NodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
