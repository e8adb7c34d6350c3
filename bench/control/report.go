package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// measured is one run.
type measured struct {
	scene
	rows []row
}

// report is the page that the bench writes.
type report struct{ runs []measured }

func (r row) String() string {
	return fmt.Sprintf("%s: %.1f s, %d writes, %.1f s of CPU, %d MiB", r.step, r.seconds, r.writes, r.cpu, r.rss>>20)
}

func (r report) write(path string) error {
	if err := os.WriteFile(path, []byte(r.text(time.Now())), 0o644); err != nil {
		return fmt.Errorf("write what was measured: %w", err)
	}
	return nil
}

func (r report) text(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, `# The volume controller with many volumes, and beside many others

Measured %s on %d cores. The time is that of the whole machine, which others may have used too; requests, CPU and memory are the
controller's own. API server, scheduler and volume binder are real; ten nodes are kwok's, each claim has a consumer and a static local
volume. `+"`make bench-control`"+` writes this page.

| pods, claims of others | step | volumes | seconds | writes | writes per volume | controller CPU s | CPU ms per volume | RSS MiB |
|---|---|---|---|---|---|---|---|---|
`, now.Format(time.DateOnly), runtime.NumCPU())
	for _, m := range r.runs {
		for _, one := range m.rows {
			volumes, writes, cpu := "", "", ""
			if one.count > 0 {
				volumes, writes = fmt.Sprint(one.count), fmt.Sprintf("%.1f", float64(one.writes)/float64(one.count))
				cpu = fmt.Sprintf("%.1f", one.cpu*1000/float64(one.count))
			}
			fmt.Fprintf(&out, "| %d, %d | %s | %s | %.1f | %d | %s | %.1f | %s | %d |\n",
				m.pods, m.claims, one.step, volumes, one.seconds, one.writes, writes, one.cpu, cpu, one.rss>>20)
		}
	}
	fmt.Fprintf(&out, `
The goal is 20 writes for a volume, none when there is nothing to do, and the same CPU for a volume however many others there are: pods
are found by an index of their claims, their nodes and the volumes they were made for, never by looking through all of them.
`)
	return out.String()
}
