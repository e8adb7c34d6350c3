package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// checkSBOM: the document has what SPDX 2.3 requires, and the modules that virtctl is known to have, as go.mod names them.
func checkSBOM(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		SPDXVersion, DataLicense, SPDXID, Name, DocumentNamespace string

		CreationInfo  struct{ Created string }
		Packages      []struct{ SPDXID, Name, VersionInfo, DownloadLocation, Comment string }
		Relationships []struct{ SpdxElementID, RelationshipType, RelatedSpdxElement string }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	d := document
	if d.SPDXVersion != "SPDX-2.3" || d.DataLicense != "CC0-1.0" || d.SPDXID != "SPDXRef-DOCUMENT" || d.Name == "" || d.DocumentNamespace == "" ||
		d.CreationInfo.Created != "2026-11-16T04:00:00Z" {
		t.Errorf("the document is %.300s", text)
	}
	ids, versions := map[string]bool{d.SPDXID: true}, map[string]string{}
	for _, p := range d.Packages {
		if ids[p.SPDXID] || p.Name == "" || p.DownloadLocation == "" {
			t.Errorf("package %+v", p)
		}
		ids[p.SPDXID], versions[p.Name] = true, p.VersionInfo
	}
	for _, r := range d.Relationships {
		if !ids[r.SpdxElementID] || !ids[r.RelatedSpdxElement] {
			t.Errorf("relationship %+v is between packages that are not there", r)
		}
	}
	modules, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"k8s.io/client-go", "github.com/spf13/cobra", "kubevirt.io/containerized-data-importer-api"} {
		if versions[name] == "" || !strings.Contains(string(modules), name+" "+versions[name]+"\n") {
			t.Errorf("the document has %s %q, go.mod another version", name, versions[name])
		}
	}
}

// What is in an image is read out of the image: the packages of its list and the modules of its programs, and nothing of other files.
func TestImageContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", path, "./cmd/worker")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for name, content := range map[string][]byte{
		packagesFile: []byte("libc6 2.36-9+deb12u1\nzlib1g 1:1.2.13\n"), "usr/bin/worker": program, "usr/bin/script": []byte("#!/bin/sh\n"),
		"usr/bin/foreign": []byte("\x7fELF and nothing of Go"), "usr/lib/worker": program,
	} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	c, err := imageContents(image, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	if c["pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=arm64"] == nil || c["pkg:deb/debian/zlib1g@1:1.2.13?arch=arm64"] == nil {
		t.Errorf("the packages are not all in %v", c)
	}
	modules := 0
	for purl, is := range c {
		if strings.HasPrefix(purl, "pkg:golang/github.com/klauspost/compress@") {
			modules++
			if len(is.in) != 1 || !is.in["worker"] {
				t.Errorf("%s is in %v", purl, is.in)
			}
		}
	}
	if modules != 1 {
		t.Errorf("a module that the worker has is there %d times in %v", modules, slices.Sorted(maps.Keys(c)))
	}
}
