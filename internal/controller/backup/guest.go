package backup

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherexec"
)

// Guests has launchers hold the disks of their guests.
type Guests interface {
	// Order gives a launcher the order that make makes, and returns the answer. Before the launcher has answered the error is
	// probe.ErrNoAnswerYet, and done is called when it has; an answer is returned once. A *Refused is an error of the launcher itself.
	Order(launcher *corev1.Pod, of Question, make func(context.Context) (launcherapi.BackupOrder, error), done func()) (launcherapi.BackupMoment, error)
}

// Question is what a launcher is asked: an answer is never taken for another's.
type Question struct {
	Launcher, Backup types.UID
	End, Complete    bool
}

func (q Question) String() string { return "backup in pod " + string(q.Launcher) }

// Refused is a launcher's refusal. It is worth no other try.
type Refused struct{ Why string }

func (r *Refused) Error() string { return r.Why }

// Exec reaches launchers through the API server.
type Exec struct {
	ask   func(ctx context.Context, launcher *corev1.Pod, verb, words string) (launcherapi.Said, error)
	aside probe.Aside[Question, launcherapi.BackupMoment]
}

// NewExec returns an Exec for the cluster of config.
func NewExec(config *rest.Config) (*Exec, error) {
	pods, err := launcherexec.New(config)
	if err != nil {
		return nil, err
	}
	// A guest that is asked to hold still may have much to write first.
	return &Exec{ask: pods.AskWith, aside: probe.Aside[Question, launcherapi.BackupMoment]{Patience: launcherapi.MostQuiet}}, nil
}

// Order implements Guests.
func (e *Exec) Order(launcher *corev1.Pod, of Question, make func(context.Context) (launcherapi.BackupOrder, error), done func()) (launcherapi.BackupMoment, error) {
	return e.aside.Once(of, func(ctx context.Context) (launcherapi.BackupMoment, error) {
		order, err := make(ctx)
		if err != nil {
			return launcherapi.BackupMoment{}, err
		}
		return e.order(ctx, launcher, order)
	}, done)
}

func (e *Exec) order(ctx context.Context, launcher *corev1.Pod, order launcherapi.BackupOrder) (launcherapi.BackupMoment, error) {
	var m launcherapi.BackupMoment
	line, err := order.Line()
	if err != nil {
		return m, fmt.Errorf("write an order: %w", err)
	}
	said, err := e.ask(ctx, launcher, launcherapi.BackupVerb, line)
	switch {
	case err != nil:
		return m, err
	case said.Refused != "":
		return m, &Refused{said.Refused}
	}
	if err := json.Unmarshal(said.Answer, &m); err != nil {
		return m, fmt.Errorf("read the launcher's answer: %w", err)
	}
	return m, nil
}
