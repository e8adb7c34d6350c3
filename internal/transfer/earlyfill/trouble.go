package earlyfill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// absence reports, to the launcher, a source that does not answer and so pauses the guest, and withdraws the report when the
// source answers.
type absence struct {
	disk string
	now  func() time.Time

	mu   sync.Mutex
	told bool
}

// noted records err, the result of a read for the guest, and returns it. Only the first error of an outage is logged: the others
// differ in words at most.
func (a *absence) noted(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil && a.told:
		a.told = earlyboot.Away.TakeBack(a.disk) != nil
	case retry.Worth(err) && !a.told:
		text := fmt.Sprintf("since %s UTC: %s", a.now().UTC().Format(time.TimeOnly), progress.OneLine(err))
		a.told = earlyboot.Away.Leave(a.disk, text) == nil
	}
	return err
}

// condemns reports whether this reason means that the guest's disk can never be completed: the image is damaged, or its server
// answers and no longer has the version that the disk was begun with. A server that does not answer is retried, and so are errors
// of the target or of the worker itself.
func condemns(r task.Reason) bool {
	switch r {
	case task.SourceNotFound, task.SourceDenied, task.SourceUntrusted, task.SourceChanged:
		return true
	case task.SourceUnreachable, task.SourceUnavailable, task.SourceTruncated, task.TargetBusy, task.TargetFailed, task.Interrupted, task.Completed:
		return false
	case task.BadTask, task.BadImage, task.UnsafeImage, task.UnsupportedImage, task.ChecksumMismatch, task.DoesNotFit:
		return true
	}
	return false
}

// Condemn tells the launcher if err, with which the transfer t ended, means that the disk its guest has used cannot be completed. It
// returns err.
func Condemn(ctx context.Context, t task.Task, err error) error {
	reason := progress.ReasonOf(ctx, err)
	if !condemns(reason) || t.Target.Content != task.Disk {
		return err
	}
	at, recallErr := earlyboot.Recall(t.Target.Path, t.Claim)
	if at == nil || at.Whole {
		return errors.Join(err, recallErr)
	}
	next := "it is tried again, and the guest goes on when that succeeds: see to the source, or delete the machine and its volume"
	if reason.Outcome() == task.Fatal {
		next = "it is not tried again: save what the guest wrote if it is worth something, and delete the machine and its volume"
	}
	return errors.Join(err, earlyboot.Verdict.Leave(t.Target.Path, progress.OneLine(err)+"; "+next))
}
