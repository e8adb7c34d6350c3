package main

import (
	"context"
	"encoding/json"
	"log"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
)

// simulator plays volume binder and kubelet. Its own requests are not counted: the controller counts its own.
type simulator struct {
	kube client.WithWatch
	open atomic.Bool // claims are bound
}

// release binds every claim from now on.
func (s *simulator) release() {
	s.open.Store(true)
	var claims corev1.PersistentVolumeClaimList
	if err := s.kube.List(context.Background(), &claims, client.InNamespace(namespace)); err != nil {
		log.Printf("simulator: list claims: %v", err)
		return
	}
	for i := range claims.Items {
		s.bind(context.Background(), &claims.Items[i])
	}
}

func (s *simulator) run(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := s.kube.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
		if err != nil {
			log.Printf("simulator: watch pods: %v", err)
			return
		}
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
				go s.work(ctx, pod)
			}
		}
	}
}

func (s *simulator) bind(ctx context.Context, c *corev1.PersistentVolumeClaim) {
	c.Status.Phase = corev1.ClaimBound
	if err := s.kube.Status().Update(ctx, c); err != nil {
		log.Printf("simulator: bind %s: %v", c.Name, err)
	}
}

// work runs a pod to its end: as good as at once, since it is the controller that is measured.
func (s *simulator) work(ctx context.Context, pod *corev1.Pod) {
	report, err := json.Marshal(task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed})
	if err != nil {
		log.Printf("simulator: %v", err)
		return
	}
	now := metav1.NewTime(time.Now())
	for _, status := range []corev1.PodStatus{
		{Phase: corev1.PodRunning},
		{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "worker", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Message: string(report), StartedAt: now, FinishedAt: now,
			}},
		}}},
	} {
		patch := client.MergeFrom(pod.DeepCopy())
		pod.Status = status
		if err := s.kube.Status().Patch(ctx, pod, patch); err != nil {
			if apierrors.IsNotFound(err) {
				return // a watch that began anew shows what has been done already
			}
			log.Printf("simulator: run %s: %v", pod.Name, err)
			return
		}
	}
}
