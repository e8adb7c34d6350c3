package worker

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/task"
)

// TestReport: what a worker left is read if it is whole and of our version.
func TestReport(t *testing.T) {
	for text, want := range map[string]bool{
		`{"version":1,"outcome":"Done"}`: true, `{"version":99,"outcome":"Done"}`: false, "killed": false, "": false,
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: text}}}}}}
		if got := Report(p); (got != nil) != want {
			t.Errorf("%q is %+v", text, got)
		}
	}
	if Report(nil) != nil || Report(&corev1.Pod{}) != nil {
		t.Error("a worker that has not ended left something")
	}
}

// TestProgress: a worker's answer is bounded before it is read.
func TestProgress(t *testing.T) {
	said := func(p task.Progress, err error) Asker {
		return func(*corev1.Pod) (task.Progress, error) { return p, err }
	}
	p := said(task.Progress{Percent: 170, Trouble: strings.Repeat("x", 5000)}, nil).Progress(t.Context(), &corev1.Pod{})
	if p == nil || p.Percent != 100 || len(p.Trouble) != mostWords {
		t.Errorf("got %+v", p)
	}
	if p := said(task.Progress{Percent: -1}, nil).Progress(t.Context(), &corev1.Pod{}); p == nil || p.Percent != 0 {
		t.Errorf("got %+v", p)
	}
	if p := said(task.Progress{}, errors.New("nobody answers")).Progress(t.Context(), &corev1.Pod{}); p != nil {
		t.Errorf("a silent worker is at %+v", p)
	}
}
