package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

const (
	// reasonNoKVM is the reason of the event of a node whose KVM runs no guest.
	reasonNoKVM = "KVMDoesNotWork"
	// tellAgain is shorter than events live, so that a node whose KVM does not work always has one.
	tellAgain = 30 * time.Minute
)

// nodeTeller returns a function that has an event of the node say that its KVM does not work, and why. It does not wait: the function returns at once,
// and the event is repeated until ctx ends. A node whose API server cannot be reached is served all the same.
func nodeTeller(ctx context.Context, log *slog.Logger, node string) (tell func(cause error), err error) {
	if node == "" {
		return nil, errors.New("no node: set NODE_NAME")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(corev1.NamespaceDefault)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "berth-node", Host: node})
	return func(cause error) {
		log.Info("an event of the node says so", "reason", reasonNoKVM)
		go repeat(ctx, func() { tellNode(recorder, node, cause) })
	}, nil
}

// repeat calls f now and every tellAgain until ctx ends.
func repeat(ctx context.Context, f func()) {
	tick := time.NewTicker(tellAgain)
	defer tick.Stop()
	for {
		f()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tellNode makes one event. Its node has its name for a UID, as in the kubelet's own events, by which kubectl finds them.
func tellNode(recorder record.EventRecorder, node string, cause error) {
	recorder.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, corev1.EventTypeWarning, reasonNoKVM,
		"%s is there, but runs no guest: %v. None of %s is allocatable; machines run here only if emulation is allowed", kvmDevice, cause, resource)
}
