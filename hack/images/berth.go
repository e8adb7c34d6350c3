package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
)

// user is the user that an image runs as unless its pod sets another.
var user = fmt.Sprintf("%d:%d", images.UID, images.UID)

// launcherProgram needs libvirt and QEMU, so it has an image with those.
const launcherProgram = "launcher"

// berth makes the image of all static programs: it has nothing else but /etc/passwd and the trusted certificates.
func (b *build) berth(ctx context.Context) (v1.Image, error) {
	commands, err := b.commands()
	if err != nil {
		return nil, err
	}
	base, err := b.berthBase(ctx)
	if err != nil {
		return nil, err
	}
	steps := []oci.Step{{Layer: base, What: "user and certificate authorities"}}
	programs, err := b.programs(ctx, commands)
	if err != nil {
		return nil, err
	}
	return oci.Image(b.arch, v1.Config{
		User: user, WorkingDir: "/", Env: []string{"PATH=/usr/bin"},
		Labels: b.labels("berth", "Berth's controller, API, upload proxy, node agent and workers"),
	}, append(steps, programs...)...)
}

// commands lists the programs under cmd that go into the berth image.
func (b *build) commands() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(b.root, "cmd"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list commands: %w", err)
	}
	var names []string
	for _, e := range entries {
		if sources, _ := filepath.Glob(filepath.Join(b.root, "cmd", e.Name(), "*.go")); len(sources) > 0 && e.Name() != launcherProgram {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// programs builds commands and makes a layer of each, so that a change of one leaves the others' layers alone.
func (b *build) programs(ctx context.Context, commands []string) ([]oci.Step, error) {
	if len(commands) == 0 {
		return nil, nil
	}
	dir := b.binaries()
	if b.arch == ownArch && b.is.Commit == "" {
		dir = filepath.Join(b.root, "bin") // where make has linked them, with the same flags: they are not linked again
	}
	var packages []string
	for _, c := range commands {
		packages = append(packages, "./cmd/"+c)
	}
	b.say("building %s", strings.Join(commands, " "))
	if err := b.goBuild(ctx, "", dir, packages...); err != nil {
		return nil, err
	}
	var steps []oci.Step
	for _, c := range commands {
		step, err := b.program(dir, c)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// program makes a layer of a program that was built.
func (b *build) program(dir, name string) (oci.Step, error) {
	sum, err := sha256File(filepath.Join(dir, name))
	if err != nil {
		return oci.Step{}, err
	}
	layer, err := b.layers.Layer(oci.Recipe+"program "+name+" "+sum, func(w *oci.Writer) error {
		return w.File("usr/bin/"+name, filepath.Join(dir, name), 0o755, 0)
	})
	return oci.Step{Layer: layer, What: "/usr/bin/" + name}, err
}

// berthBase returns the layer under the programs.
func (b *build) berthBase(ctx context.Context) (v1.Layer, error) {
	packages, err := b.debs.Named(ctx, "ca-certificates")
	if err != nil {
		return nil, err
	}
	if err := b.debs.Fetch(ctx, packages); err != nil {
		return nil, err
	}
	files, err := readTree(b.source("berth", "rootfs"))
	if err != nil {
		return nil, err
	}
	return b.layers.Layer(oci.Recipe+berthSource+files.key()+packages[0].SHA256, func(w *oci.Writer) error {
		authorities, err := certificates(ctx, b.debs.Path(packages[0]))
		if err != nil {
			return err
		}
		if err := errors.Join(files.write(w), w.Dir("tmp", 0o1777, 0), writeList(w, packages)); err != nil {
			return err
		}
		return w.Entry(tar.Header{
			Typeflag: tar.TypeReg, Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Size: int64(len(authorities)),
		}, bytes.NewReader(authorities))
	})
}

// certificates joins the authorities of the ca-certificates package, as the package does itself when it is installed.
func certificates(ctx context.Context, deb string) ([]byte, error) {
	var all bytes.Buffer
	err := debian.Files(ctx, deb, func(h *tar.Header, content io.Reader) error {
		if h.Typeflag != tar.TypeReg || path.Ext(h.Name) != ".crt" {
			return nil
		}
		_, err := all.ReadFrom(content)
		return err
	})
	if err == nil && all.Len() == 0 {
		err = fmt.Errorf("package %s holds no certificates", deb)
	}
	return all.Bytes(), err
}
