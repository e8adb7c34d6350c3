// Package agent reaches the agent in a machine's guest: it runs `launcher freeze` and `launcher thaw` in the launcher pod,
// as kubectl exec would, so no port of the pod is open to anybody else.
//
// It does not know why a guest is held still, nor for how long: the launcher lets it go after a while by itself.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-vm/berth/internal/launch"
)

// Exec reaches guests through the API server.
type Exec struct {
	config  *rest.Config
	clients kubernetes.Interface
}

// New is an Exec for the cluster of config.
func New(config *rest.Config) (*Exec, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the guests' pods: %w", err)
	}
	return &Exec{config: config, clients: clients}, nil
}

// Freeze makes the guest hold still; false means that it has no agent that answers.
func (e *Exec) Freeze(ctx context.Context, launcher *corev1.Pod) (bool, error) {
	q, err := e.run(ctx, launcher, launch.FreezeVerb)
	return q.Agent && q.Held, err
}

// Thaw lets it go on; false means that it went on by itself before. A guest whose agent does not answer now is let go by
// the launcher later.
func (e *Exec) Thaw(ctx context.Context, launcher *corev1.Pod) (bool, error) {
	q, err := e.run(ctx, launcher, launch.ThawVerb)
	return q.Held, err
}

func (e *Exec) run(ctx context.Context, pod *corev1.Pod, verb string) (launch.Quiet, error) {
	var q launch.Quiet
	url := e.clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: "compute", Command: []string{"/usr/bin/launcher", verb}, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
	exec, err := remotecommand.NewSPDYExecutor(e.config, http.MethodPost, url)
	if err != nil {
		return q, fmt.Errorf("%s %s/%s: %w", verb, pod.Namespace, pod.Name, err)
	}
	var out, errors bytes.Buffer
	if err := exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errors}); err != nil {
		return q, fmt.Errorf("%s %s/%s: %w: %s", verb, pod.Namespace, pod.Name, err, strings.TrimSpace(errors.String()))
	}
	if err := json.Unmarshal(out.Bytes(), &q); err != nil {
		return q, fmt.Errorf("%s %s/%s: read the launcher's answer %q: %w", verb, pod.Namespace, pod.Name, out.String(), err)
	}
	return q, nil
}
