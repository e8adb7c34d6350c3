package main

import (
	"context"
	"flag"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
)

// removeBackups removes backups from a set, as the task in a file says, and leaves a report.
func removeBackups(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("worker remove-backups", flag.ContinueOnError)
	flags.SetOutput(stderr)
	taskPath := flags.String("task", task.TaskPath, "`file` to read the task from")
	reportPath := flags.String("report", task.ReportPath, "`file` to write the report to")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	var t task.RemoveBackups
	if err := readJSON(*taskPath, &t); err != nil {
		return leave(task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.BadTask, Detail: err.Error()}, *reportPath, stderr)
	}
	return leave(carryOut(ctx, backup.RemoveJob{Task: t}, "", stderr), *reportPath, stderr)
}
