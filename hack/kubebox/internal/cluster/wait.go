package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-vm/berth/hack/kubebox/internal/machine"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

const (
	startPatience = 3 * time.Minute
	poll          = 200 * time.Millisecond
	// hopeless is how often a component may die during the start before the start is given up.
	hopeless = 3
	logLines = 15
)

// await calls done until it returns nil. It gives up when a component of one of the machines keeps dying, and then, as when the time is
// over, the error shows what that component said last.
func (b *Box) await(ctx context.Context, what string, names []string, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	before := b.deaths(names)
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		if died := b.died(names, before, hopeless); died != nil {
			return died
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return fmt.Errorf("waiting for %s was interrupted", what)
		}
		if died := b.died(names, before, 1); died != nil {
			return died
		}
		return fmt.Errorf("%s: not after %s: %w", what, startPatience, err)
	}
}

// deaths returns how often each component of the machines has died so far, by machine and component. A component that was killed,
// as tests do, says nothing about a later start.
func (b *Box) deaths(names []string) map[[2]string]int {
	out := map[[2]string]int{}
	for _, name := range names {
		status, err := machine.ReadStatus(b.Layout, name)
		if err != nil {
			continue // it has none yet
		}
		for _, s := range status {
			out[[2]string{name, s.Component}] = s.Deaths
		}
	}
	return out
}

// died returns an error if a machine is gone or one of its components has died that often since before.
func (b *Box) died(names []string, before map[[2]string]int, often int) error {
	ms, _, err := b.machines()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, up := running(ms, name); !up {
			return fmt.Errorf("machine %s died; its last words:\n%s", name, b.tail(name, "init"))
		}
		status, err := machine.ReadStatus(b.Layout, name)
		if err != nil {
			continue // half written
		}
		for _, s := range status {
			if s.Deaths-before[[2]string{name, s.Component}] >= often {
				return fmt.Errorf("%s on %s %s (%d times); its last words:\n%s", s.Component, name, s.LastDeath, s.Deaths, b.tail(name, s.Component))
			}
		}
	}
	return nil
}

// tail returns the end of a component's log.
func (b *Box) tail(name, component string) string {
	path := b.Layout.Log(name, component)
	f, err := os.Open(path)
	if err != nil {
		return "(no log)"
	}
	defer f.Close()
	const enough = 16 << 10
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-enough), io.SeekStart) // on error the log is shown from its start
	}
	data, err := io.ReadAll(io.LimitReader(f, enough))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-logLines):], "\n  ") + "\n  (" + path + ")"
}

func (b *Box) awaitAPIServer(ctx context.Context) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	return b.await(ctx, "the API server", []string{plan.ControlName}, func(ctx context.Context) error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// awaitNodes returns when the nodes are Ready, hold the images every pod needs, and pods can be created.
func (b *Box) awaitNodes(ctx context.Context, nodes []plan.Node) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	ms, _, err := b.machines()
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	names := []string{plan.ControlName}
	for _, n := range nodes {
		names = append(names, n.Name)
		if m, up := running(ms, n.Name); up {
			work.Go(func() error { return b.pullImages(ctx, m) })
		}
	}
	work.Go(func() error {
		return b.await(ctx, "the nodes", names, func(ctx context.Context) error { return nodesReady(ctx, client, nodes, b.began) })
	})
	return work.Wait()
}

// nodesReady is nil if the nodes are Ready and have said so since then: what an earlier start of a node said does not count.
func nodesReady(ctx context.Context, client kubernetes.Interface, nodes []plan.Node, since time.Time) error {
	for _, n := range nodes {
		node, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read node: %w", err)
		}
		c := readyCondition(node)
		if c.Status != corev1.ConditionTrue || c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			return fmt.Errorf("node %s is not Ready: %s", n.Name, c.Message)
		}
	}
	// Pods cannot be created before this exists.
	_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

func readyCondition(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{Message: "it has not registered yet"}
}

// kubectl runs the kubectl in this very program.
func (b *Box) kubectl(ctx context.Context, stdin io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"kubectl", "--kubeconfig", b.Layout.Kubeconfig()}, args...)...)
	cmd.Args[0], cmd.Stdin = "kubebox", stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
