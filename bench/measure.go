package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// measureVerb makes this program measure one contender and end. It is a process of its own because the kernel counts the
// memory of the one that forks into the peak of the one that is forked: the benchmark's own, with a registry and images
// in it, would be in every number.
const measureVerb = "measure-one"

// apart measures a contender in another process.
func apart(ctx context.Context, c contender, env []string) (s sample, err error) {
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	args := []string{measureVerb, "script", c.cmd}
	if c.bound != "" {
		args = []string{measureVerb, "bound", c.bound}
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	_, err = fmt.Sscan(string(out), &s.seconds, &s.rss)
	return s, err
}

// measureOne is the other end of apart.
func measureOne(args []string) {
	var s sample
	var err error
	if args[0] == "bound" {
		s, err = bounds[args[1]](filepath.Dir(os.Getenv("disk")), os.Getenv("out"))
	} else {
		s, err = timed(args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, s.seconds, s.rss)
	os.Exit(0)
}

// timed runs a command and says how long it took and how much memory its largest process had.
func timed(script string) (sample, error) {
	cmd := exec.Command("bash", "-c", "set -o pipefail\n"+script) //nolint:gosec // G702: it comes from works.go
	cmd.Stderr = os.Stderr
	begin := time.Now()
	err := cmd.Run()
	s := sample{seconds: time.Since(begin).Seconds()}
	if err != nil {
		return s, err
	}
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.rss = ru.Maxrss << 10
	}
	return s, nil
}
