//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// virtctlProgram is the program as users have it.
const virtctlProgram = "../../bin/virtctl"

// tool is virtctl in a test's namespace.
type tool struct {
	env     *framework.Env
	program string
	args    []string
}

func newTool(t *testing.T, env *framework.Env) *tool {
	t.Helper()
	return toolOf(t, env, virtctlProgram, "make build")
}

// toolOf is a virtctl, whoever's it is, and the command that makes it.
func toolOf(t *testing.T, env *framework.Env, program, made string) *tool {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("no virtctl (%s makes it): %v", made, err)
	}
	return &tool{env: env, program: program, args: []string{"--kubeconfig", framework.Kubeconfig(t), "--namespace", env.Namespace}}
}

// outcome is what a command left.
type outcome struct {
	out, err string
	code     int
	took     time.Duration
}

// run runs a command to its end.
func (v *tool) run(args ...string) outcome {
	v.env.T.Helper()
	ctx, cancel := context.WithTimeout(v.env.Context(), boot)
	defer cancel()
	return v.with(ctx, nil, args...)
}

// with runs a command that reads from in.
func (v *tool) with(ctx context.Context, in io.Reader, args ...string) outcome {
	v.env.T.Helper()
	var out, failure bytes.Buffer
	cmd := exec.CommandContext(ctx, v.program, append(args, v.args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &failure
	began := time.Now()
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		v.env.T.Fatalf("virtctl %v: %v", args, err)
	}
	return outcome{out: out.String(), err: failure.String(), code: cmd.ProcessState.ExitCode(), took: time.Since(began)}
}

// must runs a command that has to succeed, and returns what it printed.
func (v *tool) must(args ...string) string {
	v.env.T.Helper()
	o := v.run(args...)
	if o.code != 0 {
		v.env.T.Fatalf("virtctl %v ended with %d:\n%s%s", args, o.code, o.out, o.err)
	}
	return o.out
}

// file writes a file for virtctl to upload.
func file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
