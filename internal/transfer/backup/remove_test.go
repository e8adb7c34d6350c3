package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
)

const ours = "uid-of-web"

// put writes a backup with nothing but a manifest that can be read.
func put(t *testing.T, set, name, parent, machine string) {
	t.Helper()
	const sum = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	m := Manifest{Version: Version, Checkpoint: name, Created: time.Unix(0, 0).UTC(), Machine: json.RawMessage(fmt.Sprintf(`{"metadata":{"uid":%q}}`, machine)),
		Disks: []Disk{{Name: "root", Size: 512, Granularity: 512, File: "a", Bytes: 1, Sums: "b", Piece: minPiece, Digest: sum}}}
	if parent != "" {
		m.Parent = &Parent{Checkpoint: parent, Manifest: sum}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(set, name, ManifestFile), string(text))
	write(t, filepath.Join(set, name, "a"), "x")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func entriesOf(t *testing.T, set string) string {
	t.Helper()
	entries, err := os.ReadDir(set)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// chains is a set with two chains of one machine, what was left of an interrupted backup, and things that are no backups.
func chains(t *testing.T) string {
	set := filepath.Join(t.TempDir(), "web")
	put(t, set, "f1", "", ours)
	put(t, set, "i1", "f1", ours)
	put(t, set, "i2", "i1", ours)
	put(t, set, "f2", "", ours)
	put(t, set, "i3", "f2", ours)
	write(t, filepath.Join(set, ".i2.berth-part", "plan.json"), "{}")
	write(t, filepath.Join(set, ".other.berth-part", "plan.json"), "{}")
	write(t, filepath.Join(set, "lost+found", "x"), "")
	write(t, filepath.Join(set, "notes", "x"), "")
	return set
}

// TestRemove: a chain goes as a whole, with what was left of its backups, and nothing else; once more is no error.
func TestRemove(t *testing.T) {
	set := chains(t)
	for range 2 {
		if _, err := Remove(t.Context(), set, ours, []string{"f1", "i1", "i2", "never"}); err != nil {
			t.Fatal(err)
		}
		if got := entriesOf(t, set); got != ".other.berth-part f2 i3 lost+found notes" {
			t.Errorf("left: %s", got)
		}
	}
	if _, err := Remove(t.Context(), filepath.Join(set, "none"), ours, []string{"f1"}); err != nil {
		t.Errorf("a set that is not there: %v", err)
	}
}

// TestRefusesToRemove: what could make another backup worthless, or belongs to another user, stays, and so does everything else.
func TestRefusesToRemove(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "precious"), "x")
	for name, row := range map[string]struct {
		harm   func(set string)
		remove []string
		says   string
	}{
		"a chain that is cut":      {nil, []string{"f1", "i1"}, "backup i2 lies over backup i1"},
		"its full backup":          {nil, []string{"f2"}, "backup i3 lies over backup f2"},
		"somebody's increment":     {func(set string) { put(t, set, "theirs", "i2", "uid-of-other") }, []string{"f1", "i1", "i2"}, "backup theirs lies over backup i2"},
		"of another machine":       {func(set string) { put(t, set, "db", "", "uid-of-db") }, []string{"db"}, "is of another machine"},
		"another's name":           {func(set string) { _ = os.Rename(filepath.Join(set, "f2"), filepath.Join(set, "x")) }, []string{"f1", "i1", "i2"}, "manifest of backup f2"},
		"a manifest that is wrong": {func(set string) { write(t, filepath.Join(set, "notes", ManifestFile), "{") }, []string{"f1", "i1", "i2"}, "what backup notes lies over"},
		"a pipe as manifest":       {func(set string) { _ = syscall.Mkfifo(filepath.Join(set, "notes", ManifestFile), 0o600) }, []string{"f1", "i1", "i2"}, "is not a file"},
		"no backup":                {nil, []string{"notes"}, "manifest of backup notes"},
		"the directory above":      {nil, []string{".."}, "no name of a backup"},
		"another directory":        {nil, []string{"../web/f1"}, "no name of a backup"},
		"a hidden one":             {nil, []string{".other.berth-part"}, "no name of a backup"},
	} {
		t.Run(name, func(t *testing.T) {
			set := chains(t)
			if row.harm != nil {
				row.harm(set)
			}
			before := entriesOf(t, set)
			_, err := Remove(t.Context(), set, ours, row.remove)
			if err == nil || !strings.Contains(err.Error(), row.says) || entriesOf(t, set) != before {
				t.Errorf("%v\nbefore %s\nafter  %s", err, before, entriesOf(t, set))
			}
		})
	}
}

// TestRemovesNoLink: links of the owner of the claim lead the worker nowhere.
func TestRemovesNoLink(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "out")
	put(t, outside, "f9", "", ours)
	set := chains(t)
	for _, l := range [][2]string{{filepath.Join(outside, "f9"), "f9"}, {outside, "f1/deep"}, {outside, ".f1.berth-gone"}} {
		if err := os.Symlink(l[0], filepath.Join(set, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Remove(t.Context(), set, ours, []string{"f9", "f1", "i1", "i2"}); err != nil {
		t.Fatal(err)
	}
	if got := entriesOf(t, set); got != ".other.berth-part f2 f9 i3 lost+found notes" || entriesOf(t, outside) != "f9" || entriesOf(t, filepath.Join(outside, "f9")) != "a manifest.json" {
		t.Errorf("left: %s; outside %s", got, entriesOf(t, outside))
	}
}

// TestInterruptedRemovals: wherever a removal ends, the backups that are left have all that they lie over, and the next one completes it.
func TestInterruptedRemovals(t *testing.T) {
	for seed := range 60 {
		random := rand.New(rand.NewSource(int64(seed)))
		set := filepath.Join(t.TempDir(), fmt.Sprint(seed))
		parent, remove := "", []string{}
		for i := range 1 + random.Intn(12) {
			name := fmt.Sprintf("b%02d", random.Intn(1000)*100+i)
			if random.Intn(4) == 0 {
				parent = ""
			}
			put(t, set, name, parent, ours)
			parent, remove = name, append(remove, name)
		}
		ctx, stop := context.WithCancel(t.Context())
		after := random.Intn(len(remove) + 1)
		_, _ = Remove(&countdown{Context: ctx, left: after}, set, ours, remove)
		stop()
		left, err := List(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range left {
			if m.Parent != nil && !slices.ContainsFunc(left, func(o *Manifest) bool { return o.Checkpoint == m.Parent.Checkpoint }) {
				t.Errorf("seed %d: backup %s is left without %s", seed, m.Checkpoint, m.Parent.Checkpoint)
			}
		}
		if _, err := Remove(t.Context(), set, ours, remove); err != nil || entriesOf(t, set) != "" {
			t.Errorf("seed %d: %v, left %s", seed, err, entriesOf(t, set))
		}
	}
}

// countdown is a context that ends after some removals.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestRemoveTask: a task that makes no sense is refused, and one that does is done.
func TestRemoveTask(t *testing.T) {
	set := chains(t)
	good := task.RemoveBackups{Version: task.Version, UID: ours, Set: set, Checkpoints: []string{"f2", "i3"}}
	for name, change := range map[string]func(*task.RemoveBackups){
		"another version": func(r *task.RemoveBackups) { r.Version = 9 }, "no set": func(r *task.RemoveBackups) { r.Set = "" },
		"no machine": func(r *task.RemoveBackups) { r.UID = "" }, "no backups": func(r *task.RemoveBackups) { r.Checkpoints = nil },
	} {
		bad := good
		change(&bad)
		if r := (RemoveJob{bad}).Run(t.Context()); r.Outcome != task.Fatal || r.Reason != task.BadTask {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := (RemoveJob{good}).Run(t.Context()); r.Outcome != task.Done || strings.Contains(entriesOf(t, set), "f2") {
		t.Errorf("%+v, left %s", r, entriesOf(t, set))
	}
}
