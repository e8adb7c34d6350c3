package transfer

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
)

// tamper is a set that something is done to.
type tamper struct {
	t            *testing.T
	set, foreign string
	links        int
}

func (c *tamper) path(n int, file string) string {
	return filepath.Join(c.set, checkpoint(n), file)
}

func (c *tamper) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// edit changes the bytes of a file.
func (c *tamper) edit(n int, file string, change func([]byte) []byte) {
	p, err := os.ReadFile(c.path(n, file))
	c.must(err)
	c.must(os.WriteFile(c.path(n, file), change(p), 0o600))
}

// manifest changes a manifest.
func (c *tamper) manifest(n int, change func(*backup.Manifest)) {
	c.edit(n, backup.ManifestFile, func(p []byte) []byte {
		var m backup.Manifest
		c.must(json.Unmarshal(p, &m))
		change(&m)
		p, err := json.Marshal(m)
		c.must(err)
		return p
	})
}

// proof is the digest of a manifest.
func (c *tamper) proof(n int) string {
	p, err := os.ReadFile(c.path(n, backup.ManifestFile))
	c.must(err)
	return sumOf(p)
}

// resum makes the sums of an image true again, and the manifest's digest of them.
func (c *tamper) resum(n int) {
	image, err := os.ReadFile(c.path(n, "root.qcow2"))
	c.must(err)
	var text bytes.Buffer
	for at := 0; at < len(image); at += 1 << 20 {
		sum := blake3.Sum256(image[at:min(len(image), at+1<<20)])
		text.WriteString(hex.EncodeToString(sum[:]) + "\n")
	}
	c.must(os.WriteFile(c.path(n, "root.sums"), text.Bytes(), 0o600))
	c.manifest(n, func(m *backup.Manifest) { m.Disks[0].Digest, m.Disks[0].Bytes = sumOf(text.Bytes()), int64(len(image)) })
}

// swap gives two files each other's names.
func (c *tamper) swap(a, b string) {
	c.must(os.Rename(a, a+"-"))
	c.must(os.Rename(b, a))
	c.must(os.Rename(a+"-", b))
}

// other is a link beside n.
func (c *tamper) other(n int) int { return (n + 1) % c.links }

// flip changes a byte that far from the beginning or, if negative, from the end.
func flip(at int) func([]byte) []byte {
	return func(p []byte) []byte {
		if at < 0 {
			at += len(p)
		}
		p[at] ^= 0x20
		return p
	}
}

// tampering breaks a link of a chain, in each of these ways.
var tampering = map[string]func(c *tamper, n int){
	"no manifest":      func(c *tamper, n int) { c.must(os.Remove(c.path(n, backup.ManifestFile))) },
	"no image":         func(c *tamper, n int) { c.must(os.Remove(c.path(n, "root.qcow2"))) },
	"no sums":          func(c *tamper, n int) { c.must(os.Remove(c.path(n, "root.sums"))) },
	"missing":          func(c *tamper, n int) { c.must(os.RemoveAll(filepath.Join(c.set, checkpoint(n)))) },
	"one byte short":   func(c *tamper, n int) { c.edit(n, "root.qcow2", func(p []byte) []byte { return p[:len(p)-1] }) },
	"half":             func(c *tamper, n int) { c.edit(n, "root.qcow2", func(p []byte) []byte { return p[:len(p)/2] }) },
	"empty":            func(c *tamper, n int) { c.edit(n, "root.qcow2", func([]byte) []byte { return nil }) },
	"longer":           func(c *tamper, n int) { c.edit(n, "root.qcow2", func(p []byte) []byte { return append(p, 0) }) },
	"another header":   func(c *tamper, n int) { c.edit(n, "root.qcow2", flip(30)) },
	"another table":    func(c *tamper, n int) { c.edit(n, "root.qcow2", flip(4<<16+6)) },
	"other data":       func(c *tamper, n int) { c.edit(n, "root.qcow2", flip(-1)) },
	"other sums":       func(c *tamper, n int) { c.edit(n, "root.sums", flip(1)) },
	"sums cut off":     func(c *tamper, n int) { c.edit(n, "root.sums", func(p []byte) []byte { return p[:len(p)-1] }) },
	"manifest cut off": func(c *tamper, n int) { c.edit(n, backup.ManifestFile, func(p []byte) []byte { return p[:len(p)/2] }) },
	"a word more": func(c *tamper, n int) {
		c.edit(n, backup.ManifestFile, func(p []byte) []byte { return append([]byte(`{"more": 1,`), p[1:]...) })
	},
	"images swapped":  func(c *tamper, n int) { c.swap(c.path(n, "root.qcow2"), c.path(c.other(n), "root.qcow2")) },
	"backups swapped": func(c *tamper, n int) { c.swap(filepath.Dir(c.path(n, "x")), filepath.Dir(c.path(c.other(n), "x"))) },
	"of another machine": func(c *tamper, n int) {
		c.must(os.RemoveAll(filepath.Dir(c.path(n, "x"))))
		c.must(os.CopyFS(filepath.Dir(c.path(n, "x")), os.DirFS(filepath.Join(c.foreign, checkpoint(n)))))
	},
	"changed and summed": func(c *tamper, n int) { c.edit(n, "root.qcow2", flip(-1)); c.resum(n) },
	"flat": func(c *tamper, n int) {
		c.manifest(n, func(m *backup.Manifest) { m.Parent, m.Disks[0].Increment = nil, m.Disks[0].Increment != true })
	},
	"rebased on the first": func(c *tamper, n int) {
		c.manifest(n, func(m *backup.Manifest) { m.Parent = &backup.Parent{Checkpoint: checkpoint(0), Manifest: c.proof(0)} })
	},
	"a smaller disk": func(c *tamper, n int) { c.manifest(n, func(m *backup.Manifest) { m.Disks[0].Size -= 512 }) },
	"a path out": func(c *tamper, n int) {
		c.manifest(n, func(m *backup.Manifest) { m.Disks[0].File = "../../root.qcow2" })
	},
	"a link to another file": func(c *tamper, n int) {
		c.must(os.Remove(c.path(n, "root.qcow2")))
		c.must(os.Symlink("/proc/self/exe", c.path(n, "root.qcow2")))
	},
}

// TestWrongChains does everything to every link of a chain of ten. None is accepted, each is named, and nothing is left of the disk.
func TestWrongChains(t *testing.T) {
	const links = 10
	h, foreign := newHistory(t, 2<<20, 2), newHistory(t, 2<<20, 3)
	for range links {
		h.write(4)
		h.back()
		foreign.write(4)
		foreign.back()
	}
	proof := (&tamper{t: t, set: h.set}).proof(links - 1)
	tried := 0
	for what, do := range tampering {
		for n := range links {
			tried++
			c := &tamper{t: t, set: t.TempDir(), foreign: foreign.set, links: links}
			c.must(os.CopyFS(c.set, os.DirFS(h.set)))
			do(c, n)
			k := h.restore(links - 1)
			k.Source.Backup.Set.Local.Path, k.Source.Backup.Manifest = c.set, proof
			r := New(k).Run(t.Context())
			if r.Outcome == task.Done {
				t.Errorf("link %d, %s: accepted", n, what)
			}
			if !strings.Contains(r.Detail, checkpoint(n)) && !strings.Contains(r.Detail, checkpoint(c.other(n))) {
				t.Errorf("link %d, %s: it is not named: %s", n, what, r.Detail)
			}
			if _, err := os.Stat(k.Target.Path); !os.IsNotExist(err) || r.Written > 0 && r.Reason != task.ChecksumMismatch {
				t.Errorf("link %d, %s: a disk was left, or written to before it was refused: %+v", n, what, r)
			}
			if err := os.RemoveAll(c.set); err != nil {
				t.Fatal(err)
			}
		}
	}
	if tried < 100 {
		t.Errorf("%d wrong chains were tried", tried)
	}
}

// TestBackupLeavesNothing: a backup that cannot be completed has no name, and the ones before are as they were.
func TestBackupLeavesNothing(t *testing.T) {
	h := newHistory(t, 2<<20, 4)
	h.write(5)
	h.back()
	before := filesIn(t, h.set)
	h.write(5)
	gone := h.source()
	gone.ReaderAt = bytes.NewReader(nil)
	for what, p := range map[string]backup.Plan{
		"the disk goes away":       {Checkpoint: "b1", Disks: []backup.Source{gone}},
		"no such parent":           {Checkpoint: "b1", Parent: "b7", Disks: []backup.Source{h.source()}},
		"the name is taken":        {Checkpoint: "b0", Disks: []backup.Source{h.source()}},
		"the name leads elsewhere": {Checkpoint: "../b1", Disks: []backup.Source{h.source()}},
		"no disks":                 {Checkpoint: "b1"},
	} {
		if m, err := backup.Write(t.Context(), h.set, p); err == nil {
			t.Errorf("%s: %+v", what, m)
		}
	}
	if err := os.RemoveAll(filepath.Join(h.set, ".b1.berth-part")); err != nil {
		t.Fatal(err)
	}
	if after := filesIn(t, h.set); after != before {
		t.Errorf("the set was %s and is %s", before, after)
	}
}

// filesIn has all files below dir with their sizes.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintf(&out, "%s %d\n", path, info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
