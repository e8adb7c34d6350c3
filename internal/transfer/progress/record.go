// Package progress records one transfer while it is carried out: how far it is, and what its report will say.
//
// It does not know what is transferred or how, and it reports to nobody: its callers ask for the document of progress and, in the
// end, for the report.
package progress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// Record is what is known of a transfer. Its meter is for any goroutine, the rest for one at a time.
type Record struct {
	*Meter
	// Report is what is known so far. End adds the outcome.
	Report task.Report

	remarks string // for the report's detail: why an earlier run was not continued, or cannot be
}

// NewRecord makes the record of a transfer that begins.
func NewRecord() *Record {
	return &Record{Meter: newMeter(), Report: task.Report{Version: task.Version}}
}

// Say adds to the report what a person may want to know of a transfer that went well.
func (r *Record) Say(remark string) {
	if r.remarks != "" {
		r.remarks += "; "
	}
	r.remarks += remark
}

// Remarks returns what was said so far.
func (r *Record) Remarks() string { return r.remarks }

// SaySize remarks that a disk is smaller than was asked for.
func (r *Record) SaySize(size, asked int64) {
	if size < asked {
		r.Say(fmt.Sprintf("the disk has %d bytes: its filesystem has no room for the %d that were asked for", size, asked))
	}
}

// End makes the report of a transfer that ended with err.
func (r *Record) End(ctx context.Context, err error) task.Report {
	report := r.Report
	report.Read = r.fetched.Load()
	report.Reason = ReasonOf(ctx, err)
	report.Outcome = report.Reason.Outcome()
	report.Detail = r.remarks
	switch {
	case report.Reason == task.Interrupted:
		report.Detail = "told to stop; what was done so far is kept"
	case err != nil:
		report.Detail = OneLine(err)
	default:
		r.Enter(task.Finished, 0)
	}
	return report
}

// ReasonOf returns the reason that goes with an error; ctx is the context of what failed.
func ReasonOf(ctx context.Context, err error) task.Reason {
	var known *task.Error
	var network net.Error
	switch {
	case err == nil:
		return task.Completed
	case ctx.Err() != nil:
		return task.Interrupted
	case errors.As(err, &known):
		return known.Reason
	case errors.As(err, &network):
		return task.SourceUnreachable
	}
	return task.TargetFailed
}

// OneLine returns an error for a report.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
