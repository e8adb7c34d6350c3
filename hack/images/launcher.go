package main

import (
	"context"
	"errors"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
)

// runDir is the one folder of the image that its user may write to besides /tmp; a pod may cover it with an emptyDir.
const runDir = "/run/berth"

// launcherEnv helps to inspect a running machine with virsh: libvirt in session mode is where the launcher keeps its state.
var launcherEnv = []string{
	"PATH=/usr/bin:/usr/sbin",
	"HOME=" + runDir + "/state",
	"XDG_RUNTIME_DIR=" + runDir + "/state/runtime",
	"LIBVIRT_DEFAULT_URI=qemu:///session",
}

// launcher makes the image that runs one machine: Debian's libvirt and QEMU below, our program on top.
func (b *build) launcher(ctx context.Context) (v1.Image, error) {
	base, err := b.launcherBase(ctx)
	if err != nil {
		return nil, err
	}
	steps := []oci.Step{{Layer: base, What: "libvirt and QEMU from Debian"}}
	settings, err := b.launcherSettings()
	if err != nil {
		return nil, err
	}
	steps = append(steps, oci.Step{Layer: settings, What: "users"})
	trust, err := b.authorities(ctx)
	if err != nil {
		return nil, err
	}
	kernel, err := b.kernel(ctx)
	if err != nil {
		return nil, err
	}
	steps = append(steps, oci.Step{Layer: trust, What: "certificate authorities"}, oci.Step{Layer: kernel, What: "kernel of machines from container images"})
	config := v1.Config{
		User: user, WorkingDir: "/", Env: launcherEnv,
		Labels: b.labels("berth-launcher", "libvirt, QEMU and the program that runs one machine of Berth"),
	}
	if sources, _ := filepath.Glob(filepath.Join(b.root, "cmd", launcherProgram, "*.go")); len(sources) > 0 {
		program, err := b.programs(ctx, []string{launcherProgram})
		if err != nil {
			return nil, err
		}
		steps = append(steps, program...)
		config.Entrypoint = []string{"/usr/bin/" + launcherProgram}
	}
	return oci.Image(b.arch, config, steps...)
}

// launcherBase returns the big layer. It changes when the list of packages or a version in Debian's archive does.
func (b *build) launcherBase(ctx context.Context) (v1.Layer, error) {
	names, err := debian.ReadList(b.source("launcher", "packages"))
	if err != nil {
		return nil, err
	}
	packages, err := b.debs.Closure(ctx, names...)
	if err != nil {
		return nil, err
	}
	alone, err := debian.ReadList(b.source("launcher", "packages.alone"))
	if err != nil {
		return nil, err
	}
	more, err := b.debs.Named(ctx, alone...)
	if err != nil {
		return nil, err
	}
	return b.packagesLayer(ctx, append(packages, more...))
}

// launcherSettings returns the small layer of what is ours and is not a program.
func (b *build) launcherSettings() (v1.Layer, error) {
	files, err := readTree(b.source("launcher", "rootfs"))
	if err != nil {
		return nil, err
	}
	return b.layers.Layer(oci.Recipe+launcherSource+files.key(), func(w *oci.Writer) error {
		return errors.Join(files.write(w), w.Dir(runDir, 0o755, images.UID))
	})
}
