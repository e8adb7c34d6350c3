package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/berth-vm/berth/internal/task"
)

// mostEntries bounds the directory of a set that is listed: its owner may have put anything there.
const mostEntries = 20000

// Suffixes of directories that are not a backup, or not any more. Their names begin with a dot.
const (
	partSuffix = ".berth-part" // a backup that is being written
	goneSuffix = ".berth-gone" // a backup that is being removed
)

// Remove removes backups of one machine from the set in dir: each has its name, or is gone. What was removed before is not there, which is no
// error, so it may be repeated. Nothing is removed if a backup that stays lies over one of them, if one is of another machine, or if a manifest
// cannot be read, because it might name one of them as its parent.
//
// It touches nothing outside dir, whatever links there are in it.
func Remove(ctx context.Context, dir, machine string, checkpoints []string) (removed int, err error) {
	for _, c := range checkpoints {
		if !names.MatchString(c) {
			return 0, task.Errorf(task.BadTask, "%q is no name of a backup", c)
		}
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, failed("open the backups", err)
	}
	defer root.Close()
	r := remover{root: root, dir: dir, machine: machine, doomed: map[string]bool{}}
	for _, c := range checkpoints {
		r.doomed[c] = true
	}
	parents, err := r.check(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range childrenFirst(parents) {
		if err := errors.Join(ctx.Err(), r.remove(c)); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, r.sweep(checkpoints)
}

type remover struct {
	root    *os.Root
	dir     string
	machine string // UID
	doomed  map[string]bool
}

// check reads the manifests of the set, and returns the parents of those backups that are to be removed and are there.
func (r *remover) check(ctx context.Context) (parents map[string]string, err error) {
	entries, err := r.list()
	if err != nil {
		return nil, err
	}
	parents = map[string]string{}
	for _, name := range entries {
		doomed := r.doomed[name]
		info, err := r.root.Lstat(path.Join(name, ManifestFile))
		switch {
		case errors.Is(err, fs.ErrNotExist) && !doomed:
			continue // not a backup
		case err != nil:
			return nil, failed("look at the manifest of backup "+name, err)
		case !info.Mode().IsRegular():
			return nil, task.Errorf(task.BadImage, "the manifest of backup %s is not a file", name)
		}
		m, _, err := readManifest(ctx, InDirectory(r.dir), name, "")
		if err != nil {
			return nil, fmt.Errorf("nothing is removed while it is unknown what backup %s lies over: %w", name, err)
		}
		over := ""
		if m.Parent != nil {
			over = m.Parent.Checkpoint
		}
		switch {
		case doomed:
			if of := m.machineUID(); of != r.machine {
				return nil, task.Errorf(task.BadTask, "backup %s is of another machine: its UID is %q, not %s", name, of, r.machine)
			}
			parents[name] = over
		case r.doomed[over]:
			return nil, task.Errorf(task.BadTask, "backup %s lies over backup %s, which was to be removed without it", name, over)
		}
	}
	return parents, nil
}

// list returns the directories of the set that may be backups. Links are left out.
func (r *remover) list() ([]string, error) {
	d, err := r.root.Open(".")
	if err != nil {
		return nil, failed("list the backups", err)
	}
	defer d.Close() // opened for reading
	var out []string
	for seen := 0; ; {
		some, err := d.ReadDir(256)
		for _, e := range some {
			if e.IsDir() && names.MatchString(e.Name()) {
				out = append(out, e.Name())
			}
		}
		if seen += len(some); seen > mostEntries {
			return nil, task.Errorf(task.BadImage, "the directory of the backups has more than %d entries", mostEntries)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(out)
			return out, nil
		}
		if err != nil {
			return nil, failed("list the backups", err)
		}
	}
}

// machineUID is the UID of the machine as it was written into the backup; "": it has none.
func (m *Manifest) machineUID() string {
	var of struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if json.Unmarshal(m.Machine, &of) != nil {
		return ""
	}
	return of.Metadata.UID
}

// childrenFirst orders backups so that each comes before its parent: whenever the removal is interrupted, what is left can be restored. What names each
// other in a circle, which no writer makes, comes last.
func childrenFirst(parents map[string]string) []string {
	var out []string
	left := map[string]string{}
	for name, over := range parents {
		left[name] = over
	}
	for len(left) > 0 {
		var leaves []string
		over := map[string]bool{}
		for _, p := range left {
			over[p] = true
		}
		for name := range left {
			if !over[name] {
				leaves = append(leaves, name)
			}
		}
		if len(leaves) == 0 {
			for name := range left {
				leaves = append(leaves, name)
			}
		}
		slices.Sort(leaves)
		for _, name := range leaves {
			delete(left, name)
		}
		out = append(out, leaves...)
	}
	return out
}

// remove takes the backup's name away, on stable storage, and then its files.
func (r *remover) remove(name string) error {
	gone := "." + name + goneSuffix
	if err := r.root.RemoveAll(gone); err != nil { // an earlier one of this name
		return failed("remove what is left of backup "+name, err)
	}
	if err := r.root.Rename(name, gone); err != nil {
		return failed("remove backup "+name, err)
	}
	if err := r.sync(); err != nil {
		return err
	}
	return failed("remove the files of backup "+name, r.root.RemoveAll(gone))
}

// sweep removes what interrupted removals and interrupted backups left of these names.
func (r *remover) sweep(checkpoints []string) error {
	for _, c := range checkpoints {
		for _, suffix := range []string{goneSuffix, partSuffix} {
			if err := r.root.RemoveAll("." + c + suffix); err != nil {
				return failed("remove what is left of backup "+c, err)
			}
		}
	}
	return r.sync()
}

func (r *remover) sync() error {
	d, err := r.root.Open(".")
	if err != nil {
		return failed("flush the directory of the backups", err)
	}
	defer d.Close() // opened for reading
	return failed("flush the directory of the backups", d.Sync())
}

// RemoveJob removes backups, as a task says.
type RemoveJob struct{ Task task.RemoveBackups }

// Progress is for the worker's frame: removing is not measured.
func (RemoveJob) Progress() task.Progress { return task.Progress{Version: task.Version} }

// Run removes them and reports the outcome.
func (j RemoveJob) Run(ctx context.Context) task.Report {
	report := task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed}
	err := j.run(ctx)
	if err == nil {
		return report
	}
	report.Reason, report.Detail = task.TargetFailed, err.Error()
	var known *task.Error
	switch {
	case ctx.Err() != nil:
		report.Reason = task.Interrupted
	case errors.As(err, &known):
		report.Reason = known.Reason
	}
	report.Outcome = report.Reason.Outcome()
	return report
}

func (j RemoveJob) run(ctx context.Context) error {
	switch t := j.Task; {
	case t.Version != task.Version:
		return task.Errorf(task.BadTask, "task version %d, this worker knows %d: worker and controller come from different releases", t.Version, task.Version)
	case t.Set == "" || t.UID == "" || len(t.Checkpoints) == 0:
		return task.Errorf(task.BadTask, "the task names no set, no machine or no backups")
	}
	_, err := Remove(ctx, j.Task.Set, j.Task.UID, j.Task.Checkpoints)
	return err
}
