package main

import (
	"context"
	"flag"
	"io"
	"strconv"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/guestdisk"
)

// backUp writes a backup of a running guest, as the task in a file says, shows its progress meanwhile and leaves a report.
func backUp(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("worker backup", flag.ContinueOnError)
	flags.SetOutput(stderr)
	taskPath := flags.String("task", task.TaskPath, "`file` to read the task from")
	reportPath := flags.String("report", task.ReportPath, "`file` to write the report to")
	listen := flags.String("listen", ":"+strconv.Itoa(task.ProgressPort), "`address` to show progress at; empty for none")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	var t task.BackUp
	if err := readJSON(*taskPath, &t); err != nil {
		return leave(task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.BadTask, Detail: err.Error()}, *reportPath, stderr)
	}
	return leave(carryOut(ctx, guestdisk.NewJob(t), *listen, stderr), *reportPath, stderr)
}
