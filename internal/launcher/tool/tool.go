// Package tool runs the programs that the launcher needs besides QEMU: qemu-img, genisoimage.
package tool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Run runs a program. The error has its output.
func Run(ctx context.Context, name string, args ...string) error {
	if err := RunTo(exec.CommandContext(ctx, name, args...), nil); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// RunTo runs a program. Its standard output goes to said if that is not nil; otherwise it is part of the error, as its standard error is.
func RunTo(cmd *exec.Cmd, said io.Writer) error {
	var complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &complaint, &complaint
	if said != nil {
		cmd.Stdout = said
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return nil
}
