// Package agent reaches the agent in a machine's guest: it runs `launcher freeze` and `launcher thaw` in the launcher pod. A
// launcher may take as long as its guest does, or hang, or be on a node that is gone: nothing here waits for it, and its output
// is bounded.
//
// It does not know why a guest is frozen, nor for how long: the launcher thaws it by itself after a while.
package agent

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherexec"
)

// Exec reaches guests through the API server.
type Exec struct {
	run   func(ctx context.Context, launcher *corev1.Pod, verb string, streams remotecommand.StreamOptions) error
	aside probe.Aside[question, launcherapi.Quiet]
}

// question is a verb that a launcher is asked, for one snapshot: two snapshots of a machine must not take each other's answers.
type question struct {
	launcher types.UID
	snapshot types.UID
	verb     string
}

func (q question) String() string { return q.verb + " in pod " + string(q.launcher) }

// New returns an Exec for the cluster of config.
func New(config *rest.Config) (*Exec, error) {
	pods, err := launcherexec.New(config)
	if err != nil {
		return nil, err
	}
	return newExec(pods.Run), nil
}

func newExec(run func(context.Context, *corev1.Pod, string, remotecommand.StreamOptions) error) *Exec {
	// A guest that is asked to hold still may have much to write first; after MostQuiet the launcher would let it go.
	return &Exec{run: run, aside: probe.Aside[question, launcherapi.Quiet]{Patience: launcherapi.MostQuiet}}
}

// Freeze makes the guest hold still; false means that it has no agent that answers. Before the launcher has answered the error
// is probe.ErrNoAnswerYet, and done is called when it has.
func (e *Exec) Freeze(launcher *corev1.Pod, snapshot types.UID, done func()) (bool, error) {
	q, err := e.ask(launcher, snapshot, launcherapi.FreezeVerb, done)
	return q.Agent && q.Held, err
}

// Thaw thaws the guest; false means that it was thawed before. A guest whose agent does not answer now is thawed by the launcher
// later. Like Freeze, it does not wait.
func (e *Exec) Thaw(launcher *corev1.Pod, snapshot types.UID, done func()) (bool, error) {
	q, err := e.ask(launcher, snapshot, launcherapi.ThawVerb, done)
	return q.Held, err
}

func (e *Exec) ask(pod *corev1.Pod, snapshot types.UID, verb string, done func()) (launcherapi.Quiet, error) {
	return e.aside.Once(question{pod.UID, snapshot, verb}, func(ctx context.Context) (launcherapi.Quiet, error) {
		q, err := e.answer(ctx, pod, verb)
		if err != nil {
			return q, fmt.Errorf("%s %s/%s: %w", verb, pod.Namespace, pod.Name, err)
		}
		return q, nil
	}, done)
}

func (e *Exec) answer(ctx context.Context, pod *corev1.Pod, verb string) (launcherapi.Quiet, error) {
	var q launcherapi.Quiet
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, said := &launcherexec.Answer{Over: cancel}, &launcherexec.Answer{Over: cancel}
	err := e.run(ctx, pod, verb, remotecommand.StreamOptions{Stdout: out, Stderr: said})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return q, fmt.Errorf("%w: %.1000s", err, said)
	}
	if err := json.Unmarshal([]byte(out.String()), &q); err != nil {
		return q, fmt.Errorf("read the launcher's answer %.1000q: %w", out, err)
	}
	return q, nil
}
