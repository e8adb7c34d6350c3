package main

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/restore"
)

// drillFlags are those of a restore drill.
type drillFlags struct {
	verify, bootOnly bool
	line             string
	deadline         time.Duration
}

func (d *drillFlags) bind(cmd *cobra.Command) {
	s := cmd.Flags()
	s.BoolVar(&d.verify, "verify", false, "a drill: start a copy without a network, say whether it comes up, and remove it")
	s.StringVar(&d.line, "console-line", "", "regular expression of a line on the serial console that says that the guest is up; its readiness probe, or else its guest agent, if it is empty")
	s.DurationVar(&d.deadline, "deadline", 10*time.Minute, "how long a drill waits for the copy")
	s.BoolVar(&d.bootOnly, "boot-only", false, "a drill does not wait until the disks are full, so not all of the backup is read")
	for _, other := range []string{"list", "dry-run", "start", "as", "serve-for", "new-addresses"} {
		cmd.MarkFlagsMutuallyExclusive("verify", other)
	}
}

// verify carries out a drill, and writes what it found out.
func (a *app) verify(cmd *cobra.Command, c *kube.Client, o restore.Options, d *drillFlags, output format) error {
	order := restore.Drill{Deadline: d.deadline, BootOnly: d.bootOnly}
	if d.line != "" {
		var err error
		if order.Line, err = regexp.Compile(d.line); err != nil {
			return misused(cmd, fmt.Errorf("--console-line: %w", err))
		}
	}
	if d.deadline <= 0 {
		return misused(cmd, errors.New("--deadline has to be longer than nothing"))
	}
	report, err := restore.Verify(cmd.Context(), c, o, order, a.err)
	if err != nil {
		return err
	}
	if output == "" {
		report.Write(a.out)
	} else if err := output.write(a.out, report); err != nil {
		return err
	}
	if !report.Good() {
		return &exit{code: 1}
	}
	return nil
}
