// Package launcherexec runs the launcher's verbs in the launcher's own pod, as kubectl exec would, so the pod needs no open port.
//
// It does not check whether the pod is the machine's: its callers must have, by its owner's UID. What may be run is held by a
// ValidatingAdmissionPolicy as well (config/rbac/policies.yaml).
package launcherexec

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// What is run: one of these verbs of the program, in this container.
const (
	Container = launcherapi.Container
	Program   = "/usr/bin/launcher"

	Freeze  = launcherapi.FreezeVerb
	Thaw    = launcherapi.ThawVerb
	Console = "console"
)

// Verbs are the verbs that each of our accounts may run; the admission policy lists the same.
var (
	ControllerVerbs = []string{Freeze, Thaw, launcherapi.BackupVerb}
	APIVerbs        = []string{
		Console, launcherapi.PauseVerb, launcherapi.UnpauseVerb, launcherapi.OSInfoVerb, launcherapi.FilesystemsVerb, launcherapi.UsersVerb,
		launcherapi.ForwardVerb, launcherapi.VNCVerb, launcherapi.ScreenshotVerb, launcherapi.ResetVerb, launcherapi.SoftRebootVerb, launcherapi.FSFreezeVerb, launcherapi.FSThawVerb,
	}
)

// Pods runs verbs in the pods of a cluster.
type Pods struct {
	config  *rest.Config
	clients kubernetes.Interface
}

// New returns the pods of the cluster of config.
func New(config *rest.Config) (*Pods, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the guests' pods: %w", err)
	}
	return &Pods{config: config, clients: clients}, nil
}

// Run runs the verb in the launcher until it ends or the context does.
func (p *Pods) Run(ctx context.Context, launcher *corev1.Pod, verb string, streams remotecommand.StreamOptions) error {
	url := p.clients.CoreV1().RESTClient().Get().Resource("pods").Namespace(launcher.Namespace).Name(launcher.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: Container, Command: []string{Program, verb},
			Stdin: streams.Stdin != nil, Stdout: streams.Stdout != nil, Stderr: streams.Stderr != nil,
		}, scheme.ParameterCodec).URL()
	run, err := remotecommand.NewWebSocketExecutor(p.config, http.MethodGet, url.String())
	if err != nil {
		return fmt.Errorf("connect to pod %s/%s: %w", launcher.Namespace, launcher.Name, err)
	}
	return run.StreamWithContext(ctx, streams)
}

// Most is the largest Answer of a program in a pod: a document of a few lines.
const Most = 16 << 10

// Answer keeps what a program in a pod writes, up to Most: the program decides how much it writes.
type Answer struct {
	// Most is how many bytes are kept; 0 means the Most of the package.
	Most int
	// Over is called when there is more; nil only does not keep it.
	Over context.CancelCauseFunc

	mu   sync.Mutex
	said strings.Builder
}

// Write implements io.Writer. It never fails: after an error the reader of the stream would only go on reading what is not
// needed.
func (a *Answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := Most
	if a.Most > 0 {
		most = a.Most
	}
	room := most - a.said.Len()
	a.said.Write(p[:min(len(p), room)])
	if len(p) > room && a.Over != nil {
		a.Over(fmt.Errorf("the pod answers with more than %d bytes", most))
	}
	return len(p), nil
}

// String returns what was kept, without the space around it.
func (a *Answer) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.TrimSpace(a.said.String())
}
