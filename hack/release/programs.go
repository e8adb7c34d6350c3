package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// platform is a system that users have.
type platform struct{ os, arch string }

// platforms are those that virtctl is made for.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
}

// archiveOf returns the file that virtctl for a platform comes in.
func archiveOf(goos, arch string) string {
	name := "virtctl-" + goos + "-" + arch
	if goos == "windows" {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

// programs builds virtctl for every platform and packs it with the licence.
func (m *maker) programs(ctx context.Context) error {
	licence, err := os.ReadFile(filepath.Join(m.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read the licence: %w", err)
	}
	for _, p := range platforms {
		program, err := m.virtctl(ctx, p.os, p.arch)
		if err != nil {
			return err
		}
		files := []packed{{programName(p.os), program, 0o755}, {"LICENSE", licence, 0o644}}
		archive, err := m.pack(p.os, files)
		if err != nil {
			return err
		}
		if err := m.write(archiveOf(p.os, p.arch), archive); err != nil {
			return err
		}
	}
	return nil
}

func programName(goos string) string {
	if goos == "windows" {
		return "virtctl.exe"
	}
	return "virtctl"
}

// virtctl builds it for a platform.
func (m *maker) virtctl(ctx context.Context, goos, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "virtctl-")
	if err != nil {
		return nil, fmt.Errorf("make folder for virtctl: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, programName(goos))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w "+m.is.Flags(), "-o", path, "./cmd/virtctl")
	cmd.Dir, cmd.Env = m.root, append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build virtctl for %s/%s: %w\n%s", goos, arch, err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read virtctl: %w", err)
	}
	return program, nil
}

// packed is a file of an archive.
type packed struct {
	name    string
	content []byte
	mode    int64
}

// pack makes an archive as users of a system expect it. Its times are the commit's.
func (m *maker) pack(goos string, files []packed) ([]byte, error) {
	if goos == "windows" {
		return m.zip(files)
	}
	return m.tar(files)
}

func (m *maker) zip(files []packed) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		to, err := w.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: m.date})
		if err == nil {
			_, err = to.Write(f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end the archive: %w", err)
	}
	return out.Bytes(), nil
}

func (m *maker) tar(files []packed) ([]byte, error) {
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	w := tar.NewWriter(gz)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: m.date, Format: tar.FormatUSTAR,
		})
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := errors.Join(w.Close(), gz.Close()); err != nil {
		return nil, fmt.Errorf("end the archive: %w", err)
	}
	return out.Bytes(), nil
}

// plugin writes the manifest by which krew installs virtctl as a kubectl plugin: kubectl krew install --manifest=virt.yaml
func (m *maker) plugin() error {
	var all []any
	for _, p := range platforms {
		archive := archiveOf(p.os, p.arch)
		sum, err := sha256Of(filepath.Join(m.dist, archive))
		if err != nil {
			return err
		}
		all = append(all, object{
			"selector": object{"matchLabels": object{"os": p.os, "arch": p.arch}},
			"uri":      m.url + "/" + archive, "sha256": sum, "bin": programName(p.os),
		})
	}
	out, err := yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": object{"name": "virt"},
		"spec": object{
			"version": m.is.Version, "homepage": "https://github.com/berth-vm/berth", "platforms": all,
			"shortDescription": "Control virtual machines and their disks",
			"description": "Uploads images, makes claims and machines, starts and stops them, connects to their consoles, and shows\n" +
				"what they wait for. It is Berth's virtctl.\n",
		},
	})
	if err != nil {
		return fmt.Errorf("write the plugin's manifest: %w", err)
	}
	return m.write("virt.yaml", out)
}

func sha256Of(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read what is to be summed: %w", err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// sumsFile has the checksum of every other file of a release.
const sumsFile = "SHA256SUMS"

// sums writes the checksums in the format of sha256sum --check. Blobs of images are named by their checksums already; only the
// index needs one.
func (m *maker) sums(context.Context) error {
	var names []string
	err := filepath.WalkDir(m.dist, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.dist, path)
		if err == nil && !d.IsDir() && name != sumsFile && !strings.HasPrefix(name, filepath.Join(imagesDir, "blobs")) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list the release: %w", err)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		sum, err := sha256Of(filepath.Join(m.dist, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s  %s\n", sum, filepath.ToSlash(name))
	}
	return m.write(sumsFile, []byte(out.String()))
}

// unpacked returns a file of an archive that pack made.
func unpacked(archive, name string) ([]byte, error) {
	content, err := os.ReadFile(archive)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	if strings.HasSuffix(archive, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", archive, err)
		}
		return fs.ReadFile(r, name)
	}
	gz, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", archive, err)
	}
	entries := tar.NewReader(gz)
	for {
		h, err := entries.Next()
		if err != nil {
			return nil, fmt.Errorf("find %s in %s: %w", name, archive, err)
		}
		if h.Name == name {
			return io.ReadAll(entries)
		}
	}
}
