package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/internal/version"
)

// testRelease returns a release of this tree whose images are small: what is in images is the concern of hack/images.
func testRelease(t *testing.T) *maker {
	t.Helper()
	m := &maker{
		root: "../..", dist: t.TempDir(), arches: "amd64,arm64", url: "https://example.com/v1.2.3", log: t.Output(),
		is:   version.Info{Version: "v1.2.3", Commit: "0123456789abcdef0123456789abcdef01234567", Date: "2026-11-16T04:00:00Z"},
		date: time.Date(2026, 11, 16, 4, 0, 0, 0, time.UTC),
	}
	to, err := layout.Write(filepath.Join(m.dist, imagesDir), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{images.Berth, images.Launcher, images.CSI} {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, arch := range []string{"amd64", "arm64"} {
			one, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte(name+arch), types.OCILayer))
			if err != nil {
				t.Fatal(err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
		about := map[string]string{images.RefName: images.Repository(name) + ":" + m.is.Version}
		if err := to.AppendIndex(index, layout.WithAnnotations(about)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// A release is made from a commit alone, and says of which.
func TestStateOfTheTree(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
			"GIT_COMMITTER_DATE=2026-11-16T05:00:00+01:00")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	file := filepath.Join(root, "a file")
	git("init", "-q")
	if err := os.WriteFile(file, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := stateOf(t.Context(), root, "v0.2.0")
	if want := `the tree has 1 files that are in no commit ("a file"): a release is made from a commit alone`; err == nil || err.Error() != want {
		t.Errorf("with a file that is in no commit: %v, want %s", err, want)
	}
	git("add", ".")
	git("commit", "-q", "-m", "a")
	is, err := stateOf(t.Context(), root, "v0.2.0")
	if err != nil || is.Version != "v0.2.0" || len(is.Commit) != 40 || is.Date != "2026-11-16T04:00:00Z" {
		t.Errorf("a clean tree is %+v (%v)", is, err)
	}
	if err := os.WriteFile(file, []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if is, err := stateOf(t.Context(), root, "v0.2.0"); err == nil {
		t.Errorf("a changed tree is %+v", is)
	}
	for _, bad := range []string{"", "0.2.0", "v0.2", "v0.2.0 -X", "v01.2.3", "latest"} {
		if is, err := stateOf(t.Context(), root, bad); err == nil || !strings.Contains(err.Error(), "is no version") {
			t.Errorf("version %q gives %+v, %v", bad, is, err)
		}
	}
}

// A release that cannot be finished leaves the one before as it was.
func TestUnfinishedRelease(t *testing.T) {
	m := testRelease(t)
	m.root, m.log = t.TempDir(), &bytes.Buffer{} // nothing there to build
	m.dist = filepath.Join(t.TempDir(), "dist")
	before := filepath.Join(m.dist, "before")
	if err := errors.Join(os.MkdirAll(m.dist, 0o755), os.WriteFile(before, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.make(t.Context()); err == nil {
		t.Fatal("a release was made from nothing")
	}
	if _, err := os.Stat(before); err != nil {
		t.Errorf("the release before is gone: %v", err)
	}
}

// Everything but images, made twice, has the same bytes; the checksums are right; and virtctl says what it is.
func TestTheSameTwice(t *testing.T) {
	if len(platforms) < 5 {
		t.Fatalf("virtctl is made for %v", platforms)
	}
	defer func(all []platform) { platforms = all }(platforms)
	platforms = platforms[:1] // compiling for others takes minutes; make release does it
	var sums []string
	var m *maker
	for range 2 {
		m = testRelease(t)
		if err := errors.Join(m.programs(t.Context()), m.manifests(t.Context()), m.programSBOMs(), m.sums(t.Context())); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(m.dist, sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(text))
	}
	if sums[0] != sums[1] {
		t.Errorf("made twice, the sums differ:\n%s\n%s", sums[0], sums[1])
	}
	for _, file := range []string{
		"berth.yaml", "berth-data.yaml", "berth-1.2.3.tgz", "virtctl-linux-amd64.tar.gz", "virt.yaml", "images/index.json", "sbom/virtctl-linux-amd64.spdx.json",
	} {
		if !strings.Contains(sums[0], "  "+file+"\n") {
			t.Errorf("the sums have no %s", file)
		}
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", sumsFile)
	check.Dir = m.dist
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	program, err := unpacked(filepath.Join(m.dist, archiveOf("linux", "amd64")), "virtctl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "virtctl")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "version", "--client").Output()
	if want := "Client Version: " + m.is.String() + "\n"; err != nil || string(out) != want {
		t.Errorf("virtctl says %q (%v), want %q", out, err, want)
	}
	checkSBOM(t, filepath.Join(m.dist, "sbom", "virtctl-linux-amd64.spdx.json"))
}
