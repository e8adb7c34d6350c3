package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// bindClaim serves a claim that its storage driver fills: scheduling a pod with the claim binds the claim. The disk on it becomes
// as large as the task says, for a driver copies a disk as it was and not as large as its new claim.
func bindClaim(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("worker bind", flag.ContinueOnError)
	flags.SetOutput(stderr)
	taskPath := flags.String("task", task.TaskPath, "`file` to read the task from")
	reportPath := flags.String("report", task.ReportPath, "`file` to write the report to")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	report := task.Report{Version: task.Version, Reason: task.Completed}
	var t task.Task
	err := readJSON(*taskPath, &t)
	if err != nil {
		err = &task.Error{Reason: task.BadTask, Err: err}
	} else {
		report.Virtual, err = enlarge(t.Target)
	}
	if err != nil {
		report.Reason, report.Detail = task.TargetFailed, err.Error()
		var known *task.Error
		if errors.As(err, &known) {
			report.Reason = known.Reason
		}
	}
	report.Outcome = report.Reason.Outcome()
	return leave(report, *reportPath, stderr)
}

// enlarge makes a disk that is a file as large as the target says, and tells how large it is; never smaller. What holds no
// disk is left alone.
func enlarge(target task.Target) (int64, error) {
	info, err := os.Stat(target.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look at the disk: %w", err)
	case !info.Mode().IsRegular():
		return 0, nil
	}
	disk, err := sink.Open(sink.Options{Path: target.Path})
	if err != nil {
		return 0, err
	}
	defer disk.Close() // nothing was written through it
	room, err := disk.Limit()
	size := min(target.Size, room) // a filesystem that keeps more for itself than is usual gives what it has
	if err != nil || size <= info.Size() {
		return info.Size(), err
	}
	f, err := os.OpenFile(target.Path, os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("open the disk: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Sync(), f.Close()); err != nil {
		return 0, fmt.Errorf("make the disk %d bytes large: %w", size, err)
	}
	return size, nil
}
