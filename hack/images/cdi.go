package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
)

// CDI's programs out of hack/peers, for the tests beside it: one layer of Debian's packages, the programs on top, and an image of each name
// that differs from the others by what it starts.

const (
	peers     = "hack/peers"
	cdiModule = "kubevirt.io/containerized-data-importer"
	// cdiTags leave out what needs C libraries that a static program has not; CDI's own build has the libraries.
	cdiTags = "-tags=containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper"
	// cdiUser is the user that CDI's own images run as.
	cdiUser = "1001"
)

// cdiTools are programs that CDI's importer image has besides the importer.
var cdiTools = []string{"cdi-containerimage-server", "cdi-image-size-detection", "cdi-source-update-poller"}

// withCDI adds an image of each of CDI's programs to the targets.
func withCDI(all []target) []target {
	for _, name := range images.CDI {
		all = append(all, target{name, false, func(b *build, ctx context.Context) (v1.Image, error) { return b.cdi(ctx, name) },
			images.CDIArchive(name), images.CDIImage(name)})
	}
	return all
}

// cdi makes the image of one of CDI's programs. It has all of them, and starts the one.
func (b *build) cdi(ctx context.Context, name string) (v1.Image, error) {
	if b.cdiSteps == nil {
		steps, err := b.cdiLayers(ctx)
		if err != nil {
			return nil, err
		}
		b.cdiSteps = steps
	}
	start := []string{"/usr/bin/" + name, "-alsologtostderr"}
	switch name {
	case "cdi-cloner":
		start = []string{"/usr/bin/cloner_startup.sh"}
	case "cdi-operator":
		start = start[:1]
	}
	return oci.Image(b.arch, v1.Config{
		User: cdiUser, WorkingDir: "/tmp", Entrypoint: start, Env: []string{"PATH=/usr/bin:/usr/sbin"},
		Labels: b.labels(name, "a program of CDI, built for tests beside it"),
	}, b.cdiSteps...)
}

func (b *build) cdiLayers(ctx context.Context) ([]oci.Step, error) {
	names, err := debian.ReadList(b.source("cdi", "packages"))
	if err != nil {
		return nil, err
	}
	packages, err := b.debs.Closure(ctx, names...)
	if err != nil {
		return nil, err
	}
	base, err := b.packagesLayer(ctx, packages)
	if err != nil {
		return nil, err
	}
	steps := []oci.Step{{Layer: base, What: "qemu-img and nbdkit from Debian"}}
	trust, err := b.authorities(ctx)
	if err != nil {
		return nil, err
	}
	dir := b.binaries() + "-cdi"
	build := []string{cdiTags}
	for _, name := range images.CDI {
		build = append(build, cdiModule+"/cmd/"+name)
	}
	for _, name := range cdiTools {
		build = append(build, cdiModule+"/tools/"+name)
	}
	b.say("building CDI's programs: many minutes the first time")
	if err := b.goBuild(ctx, peers, dir, build...); err != nil {
		return nil, err
	}
	script, err := b.clonerScript(ctx) // the build has fetched the module that it is in
	if err != nil {
		return nil, err
	}
	steps = append(steps, oci.Step{Layer: trust, What: "certificate authorities"}, oci.Step{Layer: script, What: "/usr/bin/cloner_startup.sh"})
	for _, name := range append(append([]string{}, images.CDI...), cdiTools...) {
		step, err := b.program(dir, name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// clonerScript returns what CDI's cloner is started by, as its module has it.
func (b *build) clonerScript(ctx context.Context) (v1.Layer, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", cdiModule)
	list.Dir = filepath.Join(b.root, peers)
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("find CDI's module: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "cmd", "cdi-cloner", "cloner_startup.sh"))
	if err != nil {
		return nil, fmt.Errorf("read how CDI starts its cloner: %w", err)
	}
	return b.layers.Layer(oci.Recipe+"cloner "+string(text), func(w *oci.Writer) error {
		return w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/cloner_startup.sh", Mode: 0o755, Size: int64(len(text))}, bytes.NewReader(text))
	})
}
