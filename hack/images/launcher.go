package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
)

// runDir is the one folder of the image that its user may write to besides /tmp; a pod may cover it with an emptyDir.
const runDir = "/run/berth"

// launcherEnv is for whoever looks into a running machine with virsh: libvirt in session mode is where the launcher keeps its state.
var launcherEnv = []string{
	"PATH=/usr/bin:/usr/sbin",
	"HOME=" + runDir + "/state",
	"XDG_RUNTIME_DIR=" + runDir + "/state/runtime",
	"LIBVIRT_DEFAULT_URI=qemu:///session",
}

// launcher makes the image that runs one machine: Debian's libvirt and QEMU below, our program on top.
func (b *build) launcher(ctx context.Context) error {
	base, err := b.launcherBase(ctx)
	if err != nil {
		return err
	}
	steps := []oci.Step{{Layer: base, What: "libvirt and QEMU from Debian"}}
	settings, err := b.launcherSettings()
	if err != nil {
		return err
	}
	steps = append(steps, oci.Step{Layer: settings, What: "users"})
	config := v1.Config{
		User: user, WorkingDir: "/", Env: launcherEnv,
		Labels: map[string]string{"org.opencontainers.image.title": "berth-launcher"},
	}
	if sources, _ := filepath.Glob(filepath.Join(b.root, "cmd", launcherProgram, "*.go")); len(sources) > 0 {
		program, err := b.programs(ctx, []string{launcherProgram})
		if err != nil {
			return err
		}
		steps = append(steps, program...)
		config.Entrypoint = []string{"/usr/bin/" + launcherProgram}
	}
	image, err := oci.Image(config, steps...)
	if err != nil {
		return err
	}
	return b.archive(images.LauncherArchive, images.Launcher, image)
}

// launcherBase is the big layer. It changes when the list of packages or a version in Debian's archive does.
func (b *build) launcherBase(ctx context.Context) (v1.Layer, error) {
	names, err := debian.ReadList(b.source("launcher", "packages"))
	if err != nil {
		return nil, err
	}
	packages, err := b.debs.Closure(ctx, names...)
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	key := oci.Recipe + launcherSource
	for _, p := range packages {
		fmt.Fprintf(&list, "%s %s\n", p.Name, p.Version)
		key += p.SHA256
	}
	return b.layers.Layer(key, func(w *oci.Writer) error {
		b.say("fetching and joining %d Debian packages", len(packages))
		if err := b.debs.Fetch(ctx, packages); err != nil {
			return err
		}
		if err := mergedFolders(w); err != nil {
			return err
		}
		for _, p := range packages {
			if err := addPackage(ctx, w, b.debs.Path(p)); err != nil {
				return err
			}
		}
		return w.Entry(tar.Header{
			Typeflag: tar.TypeReg, Name: "usr/share/berth/packages", Mode: 0o644, Size: int64(list.Len()),
		}, strings.NewReader(list.String()))
	})
}

// mergedFolders makes the folders that no package brings or that must be there before the first package: Debian's root has had its
// programs and libraries in /usr for years, but packages may still name the old places.
func mergedFolders(w *oci.Writer) error {
	for _, dir := range []string{"bin", "lib", "lib32", "lib64", "libx32", "sbin"} {
		if err := errors.Join(w.Dir("usr/"+dir, 0o755, 0), w.Link(dir, "usr/"+dir)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"dev", "proc", "run", "sys", "var"} {
		if err := w.Dir(dir, 0o755, 0); err != nil {
			return err
		}
	}
	return errors.Join(w.Dir("tmp", 0o1777, 0), w.Dir("var/tmp", 0o1777, 0), w.Link("var/run", "/run"), w.Link("var/lock", "/run/lock"))
}

// merged is where a path of a package is in a root with merged folders.
func merged(name string) string {
	first, _, _ := strings.Cut(name, "/")
	switch first {
	case "bin", "lib", "lib32", "lib64", "libx32", "sbin":
		return "usr/" + name
	}
	return name
}

// unwanted are parts of packages that nothing in a container reads. Copyright files stay.
var unwanted = []string{
	"etc/cron.daily", "etc/init.d", "etc/logrotate.d", "usr/lib/systemd/system", "usr/lib/udev", "usr/share/bash-completion",
	"usr/share/bug", "usr/share/i18n", "usr/share/icons", "usr/share/info", "usr/share/iso-codes", "usr/share/lintian", "usr/share/locale",
	"usr/share/man", "usr/share/xml/iso-codes", "var/cache", "var/log",
}

func wanted(name string) bool {
	for _, u := range unwanted {
		if name == u || strings.HasPrefix(name, u+"/") {
			return false
		}
	}
	return !strings.HasPrefix(name, "usr/share/doc/") || path.Base(name) == "copyright"
}

// addPackage adds the files of a package as dpkg would unpack them. Its installation scripts are not run: the users they would make
// are in rootfs, the loader finds libraries without its cache. Nothing in a pod without privileges may gain any: no setuid bits.
func addPackage(ctx context.Context, w *oci.Writer, deb string) error {
	return debian.Files(ctx, deb, func(h *tar.Header, content io.Reader) error {
		entry := *h
		entry.Name = merged(h.Name)
		if !wanted(entry.Name) {
			return nil
		}
		if h.Typeflag == tar.TypeLink {
			entry.Linkname = merged(path.Clean("/" + h.Linkname)[1:])
		}
		entry.Mode &^= 0o6000
		return w.Entry(entry, content)
	})
}

// launcherSettings is the small layer of what is ours and is not a program.
func (b *build) launcherSettings() (v1.Layer, error) {
	files, err := readTree(b.source("launcher", "rootfs"))
	if err != nil {
		return nil, err
	}
	return b.layers.Layer(oci.Recipe+launcherSource+files.key(), func(w *oci.Writer) error {
		return errors.Join(files.write(w), w.Dir(runDir, 0o755, images.UID))
	})
}
