package simulated

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

//go:embed stages.yaml
var stages string

// StartNodes builds kwok, which is a module of its own so that the product does not depend on it, and starts it together
// with the real scheduler and the real volume binder.
func (c *Cluster) StartNodes(ctx context.Context) error {
	kwok := filepath.Join(c.Dir, "kwok")
	if err := c.Build(ctx, kwok, filepath.Join("hack", "kwok"), "sigs.k8s.io/kwok/cmd/kwok"); err != nil {
		return err
	}
	report, err := json.Marshal(task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed})
	if err != nil {
		return fmt.Errorf("write the workers' report: %w", err)
	}
	lives := filepath.Join(c.Dir, "stages.yaml")
	if err := os.WriteFile(lives, []byte(strings.Replace(stages, "REPORT", string(report), 1)), 0o600); err != nil {
		return fmt.Errorf("write stages: %w", err)
	}
	schedule := filepath.Join(c.Dir, "scheduler.yaml")
	if err := os.WriteFile(schedule, fmt.Appendf(nil, schedulerConfig, c.Kubeconfig), 0o600); err != nil {
		return fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	ports, err := FreePorts(2)
	if err != nil {
		return err
	}
	if err := c.kubernetes("kube-scheduler", "--config="+schedule, "--bind-address=127.0.0.1", "--secure-port="+ports[0]); err != nil {
		return err
	}
	if err := c.kubernetes("kube-controller-manager", "--kubeconfig="+c.Kubeconfig, "--controllers=persistentvolume-binder-controller",
		"--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=2000", "--bind-address=127.0.0.1",
		"--secure-port="+ports[1]); err != nil {
		return err
	}
	return c.Run("kwok.log", nil, kwok, "--kubeconfig="+c.Kubeconfig, "--config="+lives,
		"--manage-all-nodes=true")
}

// The scheduler's share of the API server, like that of the other programs here, does not limit the bench.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 1000, burst: 2000}
`

// Build makes a program of one of the modules here, with the flags of `make build` to share its cache.
func (c *Cluster) Build(ctx context.Context, path, module, main string) error {
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(c.Root, module), "-trimpath", "-ldflags", "-s -w", "-o", path, main)
	build.Stderr, build.Env = os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s: %w", main, err)
	}
	return nil
}
