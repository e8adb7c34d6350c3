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
	rows   []row
	writes map[string]int // what the controller did how often, if it was counted
}

// kindOfClass returns where the volumes of a run come from: the class, in a word or two.
func (s scene) kindOfClass() string {
	if s.csi {
		return "CSI class"
	}
	return "static volumes"
}

func (r row) String() string {
	return fmt.Sprintf("%s: %.1f s, %d writes, %.1f s of CPU, %d MiB", r.step, r.seconds, r.writes, r.cpu, r.rss>>20)
}

func writePage(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write what was measured: %w", err)
	}
	return nil
}

// besideOthers returns the page about a cluster that has nothing else, and one that has.
func besideOthers(runs []measured) string {
	return page("The volume controller with many volumes, and beside many others", "make bench-control", "pods, claims of others", runs,
		func(m measured) string { return fmt.Sprintf("%d, %d", m.pods, m.claims) }) + `
The goal is 20 writes for a volume, none when there is nothing to do, and the same CPU for a volume however many others there are: pods
are found by an index of their claims, their nodes and the volumes they were made for, never by looking through all of them.
`
}

// besidePeers returns the page about CDI's controller and ours.
func besidePeers(runs []measured) string {
	var out strings.Builder
	out.WriteString(page("CDI's controller and ours", "make bench-peers", "controller", runs, func(m measured) string { return m.program.name + ", " + m.kindOfClass() }))
	out.WriteString(`
CDI is version 1.65.0 as it is published, with its own settings. The class of a CSI driver is what most clusters have: there CDI fills a claim of its own
and hands its volume to the one that was asked for, and Berth fills the one that was asked for. The driver is simulated: it has volumes and no disks. Where the volumes are
there already (static), CDI fills the claim itself too. It writes more on a quiet machine, where it sees every change, than on a busy one.
What a controller writes in the minute after all volumes are complete belongs to them too; CDI's has the renewals of its lease among it.

The goal is at most half of CDI's writes and CPU for a volume, and four times the volumes in four times the time.

| from the first volume's creation to the end of that minute | class | volumes | ours by CDI's | goal |
|---|---|---|---|---|
`)
	for i := 0; i+1 < len(runs); i += 2 {
		their, our := runs[i].total(), runs[i+1].total()
		fmt.Fprintf(&out, "| writes | %s | %d | %.3f | 0.5 |\n", runs[i].kindOfClass(), runs[i].volumes, float64(our.writes)/float64(their.writes))
		fmt.Fprintf(&out, "| CPU | %s | %d | %.2f | 0.5 |\n", runs[i].kindOfClass(), runs[i].volumes, our.cpu/their.cpu)
	}
	for _, m := range [][2]measured{{runs[0], runs[2]}, {runs[1], runs[3]}} {
		fmt.Fprintf(&out, "\n%s took %.1f times as long to complete %d volumes as to complete %d.\n",
			m[0].program.name, m[1].row(complete).seconds/m[0].row(complete).seconds, m[1].volumes, m[0].volumes)
	}
	return out.String()
}

// total returns what all steps after the start took together.
func (m measured) total() row {
	var sum row
	for _, r := range m.rows[1:] {
		sum.writes += r.writes
		sum.cpu += r.cpu
	}
	return sum
}

// row returns what was measured of a step.
func (m measured) row(step string) row {
	for _, r := range m.rows {
		if r.step == step {
			return r
		}
	}
	return row{}
}

// page returns what was measured as a table, with what tells one run from another in the first column.
func page(title, command, column string, runs []measured, name func(measured) string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `# %s

Measured %s on %d cores. The time is that of the whole machine, which others may have used too; requests, CPU and memory are the
controller's own. API server, scheduler and volume binder are real; ten nodes are kwok's, each claim has a consumer and a
volume of its own. `+"`%s`"+` writes this page.

| %s | step | volumes | seconds | writes | writes per volume | controller CPU s | CPU ms per volume | RSS MiB |
|---|---|---|---|---|---|---|---|---|
`, title, time.Now().Format(time.DateOnly), runtime.NumCPU(), command, column)
	for _, m := range runs {
		for _, one := range m.rows {
			volumes, writes, cpu := "", "", ""
			if one.count > 0 {
				volumes, writes = fmt.Sprint(one.count), fmt.Sprintf("%.1f", float64(one.writes)/float64(one.count))
				cpu = fmt.Sprintf("%.1f", one.cpu*1000/float64(one.count))
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %.1f | %d | %s | %.1f | %s | %d |\n",
				name(m), one.step, volumes, one.seconds, one.writes, writes, one.cpu, cpu, one.rss>>20)
		}
	}
	return out.String()
}
