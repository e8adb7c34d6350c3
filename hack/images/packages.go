package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
)

// packagesOf returns the layer of the packages that an image's list names, and no others.
func (b *build) packagesOf(ctx context.Context, image string) (v1.Layer, error) {
	names, err := debian.ReadList(b.source(image, "packages"))
	if err != nil {
		return nil, err
	}
	packages, err := b.debs.Named(ctx, names...)
	if err != nil {
		return nil, err
	}
	return b.packagesLayer(ctx, packages)
}

// packagesLayer joins Debian packages to one layer, as if they were installed on an empty machine.
func (b *build) packagesLayer(ctx context.Context, packages []debian.Package) (v1.Layer, error) {
	key := oci.Recipe + packagesSource
	for _, p := range packages {
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
		return writeList(w, packages)
	})
}

// writeList writes which packages an image has, for the caller later: a release's SBOM is made from it.
func writeList(w *oci.Writer, packages []debian.Package) error {
	return writeListTo(w, packagesFile, packages)
}

// packagesFile is where an image has its list. One of packages for another architecture than the image's has that as an ending.
const packagesFile = "usr/share/berth/packages"

func writeListTo(w *oci.Writer, name string, packages []debian.Package) error {
	var list strings.Builder
	for _, p := range packages {
		fmt.Fprintf(&list, "%s %s\n", p.Name, p.Version)
	}
	return w.Entry(tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(list.Len()),
	}, strings.NewReader(list.String()))
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

// merged returns where a path of a package is in a root with merged folders.
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
