package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/open"
)

// pollSource finds out which version of an image its source has now and leaves the digest of that in its report. Nothing
// is imported; of a container image as much is read as it takes to find the disk in it.
func pollSource(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("worker poll", flag.ContinueOnError)
	flags.SetOutput(stderr)
	taskPath := flags.String("task", task.TaskPath, "`file` to read the task from")
	reportPath := flags.String("report", task.ReportPath, "`file` to write the report to")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	var t task.Task
	if err := readJSON(*taskPath, &t); err != nil {
		report := task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.BadTask, Detail: err.Error()}
		return leave(report, *reportPath, stderr)
	}
	return leave(poll(ctx, t.Source), *reportPath, stderr)
}

func poll(ctx context.Context, s task.Source) task.Report {
	r := task.Report{Version: task.Version, Reason: task.Completed, Outcome: task.Done}
	blob, err := open.Open(ctx, s)
	if err != nil {
		r.Reason = task.SourceUnreachable
		var known *task.Error
		if errors.As(err, &known) {
			r.Reason = known.Reason
		}
		r.Outcome, r.Detail = r.Reason.Outcome(), strings.ReplaceAll(err.Error(), "\n", "; ")
		return r
	}
	defer blob.Close() // nothing was written
	info := blob.Info()
	if info.Version == "" {
		r.Outcome, r.Reason = task.Fatal, task.BadImage
		r.Detail = info.Name + ": the server gives neither an ETag nor Last-Modified, so a new version cannot be told from the old one"
		return r
	}
	r.Digest, r.Labels = digestOf(info.Version), info.Labels
	return r
}

// digestOf returns the digest of a container image, or else of what tells a version from others.
func digestOf(version string) string {
	if image, ok := strings.CutPrefix(version, "image:"); ok {
		image, _, _ = strings.Cut(image, " ")
		return image
	}
	sum := sha256.Sum256([]byte(version))
	return "sha256:" + hex.EncodeToString(sum[:])
}
