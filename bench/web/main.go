// Command web measures the page in the browser with many objects: how soon the first and the last machine is seen, how long a change of
// an object takes until it is seen, and how much memory virtctl web needs. The objects are simulated, and served by a small API server
// of this program; virtctl and the browser are the real ones.
//
//	bin/measure/web [-machines 1000] [-disks 3000]
//
// It needs chromium, builds virtctl, and writes results.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

func main() {
	log.SetFlags(0)
	machines := flag.Int("machines", 1000, "how many machines")
	disks := flag.Int("disks", 3000, "how many disks")
	out := flag.String("out", filepath.Join("bench", "web", "results.md"), "where to write what was measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *machines, *disks, *out)
	stop()
	if err != nil {
		log.Fatalf("web: %v", err)
	}
}

// bounds that the page must meet
const (
	firstBound  = time.Second
	updateBound = 100 * time.Millisecond
	memoryBound = 150 << 20
	updates     = 50
)

type measured struct {
	first, all time.Duration // after the page was asked for
	updates    []time.Duration
	memory     int64 // the most that virtctl had
}

func run(ctx context.Context, machines, disks int, out string) error {
	cluster := newSimulated(machines, disks)
	api := httptest.NewServer(cluster)
	defer api.Close()
	dir, err := os.MkdirTemp("", "berth-bench-web-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	address, pid, end, err := serve(ctx, dir, api.URL)
	if err != nil {
		return err
	}
	defer end()
	m, err := look(ctx, cluster, address, machines)
	if err != nil {
		return err
	}
	if m.memory, err = peak(pid); err != nil {
		return err
	}
	return report(out, machines, disks, m)
}

var printed = regexp.MustCompile(`http://\S+`)

// serve builds virtctl and runs its page.
func serve(ctx context.Context, dir, api string) (address string, pid int, end func(), err error) {
	program, config := filepath.Join(dir, "virtctl"), filepath.Join(dir, "kubeconfig")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/virtctl")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", 0, nil, fmt.Errorf("build virtctl: %w", err)
	}
	text := fmt.Sprintf(`{"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`, api)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", 0, nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, "web", "--open=false", "--kubeconfig", config)
	cmd.Stderr = os.Stderr
	says, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, fmt.Errorf("run virtctl: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, fmt.Errorf("run virtctl: %w", err)
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(says).ReadString('\n')
	if address = printed.FindString(line); address == "" {
		end()
		return "", 0, nil, fmt.Errorf("virtctl web says %q: %w", line, err)
	}
	return address, cmd.Process.Pid, end, nil
}

// look measures in the browser, by its own clock.
func look(ctx context.Context, cluster *simulated, address string, machines int) (m measured, err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(time.Minute))
	start, cancelStart := chromedp.NewExecAllocator(ctx, options...)
	defer cancelStart()
	tab, cancel := chromedp.NewContext(start)
	defer cancel()
	if err := chromedp.Run(tab, chromedp.Navigate(address)); err != nil { // lets the server fill its caches, and the browser in
		return m, fmt.Errorf("open the page: %w", err)
	}
	seen := fmt.Sprintf(`new Promise(done => { let first = 0; const look = () => {
		const n = document.querySelectorAll("article.box").length;
		if (n && !first) first = performance.now();
		if (n >= %d) requestAnimationFrame(() => done([first, performance.now()])); else requestAnimationFrame(look);
	}; look(); })`, machines)
	var at []float64
	if err := chromedp.Run(tab, chromedp.Evaluate(seen, &at, await), chromedp.Reload(), chromedp.Evaluate(seen, &at, await)); err != nil {
		return m, fmt.Errorf("look at the page: %w", err)
	}
	m.first, m.all = milliseconds(at[0]), milliseconds(at[1])
	for i := range updates {
		took, err := changed(tab, cluster, i)
		if err != nil {
			return m, err
		}
		m.updates = append(m.updates, took)
	}
	slices.Sort(m.updates)
	return m, nil
}

// changed changes a machine, and says how long that took to be seen.
func changed(tab context.Context, cluster *simulated, i int) (time.Duration, error) {
	machine := cluster.kinds["virtualmachines"].objects[i*17%len(cluster.kinds["virtualmachines"].objects)]
	meta := machine["metadata"].(map[string]any)
	id, word := fmt.Sprintf("machine/%s/%s", meta["namespace"], meta["name"]), fmt.Sprintf("Paused%d", i)
	watch := fmt.Sprintf(`globalThis.seen = new Promise(done => new MutationObserver((_, o) => {
		if (document.getElementById(%q)?.textContent.includes(%q)) { o.disconnect(); requestAnimationFrame(() => done(Date.now())); }
	}).observe(document.body, {subtree: true, childList: true})); 0`, id, word)
	var at float64
	if err := chromedp.Run(tab, chromedp.Evaluate(watch, nil)); err != nil {
		return 0, fmt.Errorf("look at machine %s: %w", id, err)
	}
	machine["status"] = json.RawMessage(fmt.Sprintf(`{"printableStatus": %q}`, word))
	began := time.Now()
	cluster.change("virtualmachines", machine)
	limited, cancel := context.WithTimeout(tab, 30*time.Second)
	defer cancel()
	if err := chromedp.Run(limited, chromedp.Evaluate(`globalThis.seen`, &at, await)); err != nil {
		return 0, fmt.Errorf("wait for machine %s: %w", id, err)
	}
	return time.UnixMilli(int64(at)).Sub(began), nil
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// peak returns the most memory that a process had.
func peak(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read how much memory virtctl has: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("the kernel does not say how much memory virtctl has")
}

func report(out string, machines, disks int, m measured) error {
	median, worst := m.updates[len(m.updates)/2], m.updates[len(m.updates)-1]
	slow := m.updates[len(m.updates)*95/100]
	text := fmt.Sprintf(`# The page with many objects

Measured by `+"`make bench-web`"+` on %d processors, %s: %d machines that run, with %d disks, on %d nodes. The objects are simulated; virtctl web
and chromium are the real ones, on the same processors. Times are the browser's, from the click until it is on the screen.

| | measured | bound |
|---|---|---|
| first machine is seen | %d ms | %d ms |
| all %d are seen | %d ms | |
| a change is seen, half of %d | %d ms | %d ms |
| a change is seen, 95 of 100 | %d ms | |
| a change is seen, the slowest | %d ms | |
| most memory of virtctl web | %d MiB | %d MiB |
`, runtime.NumCPU(), runtime.Version(), machines, disks, nodes, m.first.Milliseconds(), firstBound.Milliseconds(), machines, m.all.Milliseconds(),
		len(m.updates), median.Milliseconds(), updateBound.Milliseconds(), slow.Milliseconds(), worst.Milliseconds(), m.memory>>20, memoryBound>>20)
	if err := os.WriteFile(out, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write what was measured: %w", err)
	}
	_, _ = fmt.Fprint(os.Stdout, text)
	if m.first > firstBound || median > updateBound || m.memory > memoryBound {
		return errors.New("a bound is not kept")
	}
	return nil
}
