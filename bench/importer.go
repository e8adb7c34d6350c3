package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const importer = "CDI's importer"

// importerRun starts CDI's importer as its pod does: in the root filesystem of its image ($cdi), with a claim, scratch space, and an order
// in its environment. That it has scratch space from its start saves it the pod that finds out that it needs some.
const importerRun = `mkdir -p "$out.d/data" "$out.d/scratch" && unshare -m bash -ec '
cd "$cdi"; mkdir -p data scratch dev proc tmp
mount --bind "$out.d/data" data; mount --bind "$out.d/scratch" scratch; mount -t proc proc proc
mount -t tmpfs tmpfs dev; cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom dev
exec env -i PATH=/usr/bin:/usr/sbin IMPORTER_CONTENTTYPE=kubevirt IMPORTER_IMAGE_SIZE="$size" FILESYSTEM_OVERHEAD=0 PREALLOCATION=false \
INSECURE_TLS=true OWNER_UID=bench %s chroot . /usr/bin/cdi-importer -alsologtostderr' && mv "$out.d/data/disk.img" "$out"`

// besideImporter returns the works that both the worker and CDI's importer do, with no one else.
func besideImporter(all []work) (some []work) {
	for _, w := range all {
		order := fmt.Sprintf(`IMPORTER_SOURCE=http IMPORTER_ENDPOINT="$web/%s"`, filepath.Base(w.ours))
		switch {
		case w.registry:
			order = fmt.Sprintf(`IMPORTER_SOURCE=registry IMPORTER_ENDPOINT="docker://$hub/disk-%s:latest"`, w.letter)
		case !strings.Contains(w.ours, "$web"):
			continue // it makes no clones
		}
		w.others = []contender{{name: importer, cmd: fmt.Sprintf(importerRun, order), exact: true}}
		w.goals = []goal{{text: "no slower than " + importer, over: ours, under: importer, limit: 1}}
		some = append(some, w)
	}
	return some
}

// unpackImporter gives CDI's importer its root filesystem, out of the archive of its image.
func (b *bench) unpackImporter(ctx context.Context) error {
	dir, err := os.MkdirTemp(b.out, "importer-")
	if err != nil {
		return fmt.Errorf("make a folder for %s: %w", importer, err)
	}
	b.cdi = filepath.Join(dir, "root")
	if err := shell(ctx, fmt.Sprintf("mkdir '%[1]s/root' '%[1]s/layout' && tar -C '%[1]s/layout' -xf '%[2]s'", dir, b.importer)); err != nil {
		return fmt.Errorf("unpack the archive of %s: %w", importer, err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "layout"))
	if err != nil {
		return fmt.Errorf("read the image of %s: %w", importer, err)
	}
	listed, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("read the image of %s: %w", importer, err)
	}
	if n := len(listed.Manifests); n != 1 {
		return fmt.Errorf("the archive of %s has %d images, want one", importer, n)
	}
	image, err := index.Image(listed.Manifests[0].Digest)
	if err != nil {
		return fmt.Errorf("read the image of %s: %w", importer, err)
	}
	files := mutate.Extract(image)
	return errors.Join(extract(ctx, files, b.cdi), files.Close())
}

func extract(ctx context.Context, files io.Reader, dir string) error {
	cmd := exec.CommandContext(ctx, "tar", "-C", dir, "-xf", "-")
	cmd.Stdin = files
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack to %s: %w: %s", dir, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// reportImporter writes importer.md.
func (b *bench) reportImporter(works []work) error {
	t := b.tables(works)
	fmt.Fprintf(b.log, "\n%s\n", t)
	return os.WriteFile(filepath.Join(b.results, "importer.md"), fmt.Appendf(nil, importerText, time.Now().UTC().Format(time.DateOnly), b.runs,
		b.data, b.disk, machine(), t), 0o644)
}

const importerText = `# CDI's importer and our worker

Written by ` + "`make bench-peers`" + ` on %s: %d interleaved runs, medians. The disk has %d MB of real files in %d MiB; images come from nginx
(containers from a registry) over loopback and are warm in the page cache, and fsync is inside the timing. CDI's importer is version 1.65.0, built
out of its module, with Debian's qemu-img and nbdkit, in a root filesystem of its own and with scratch space on the same filesystem; that both make the same
disk is compared byte by byte. The memory is that of the largest process.

%s.

%s`
