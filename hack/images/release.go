package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/internal/version"
)

// ownArch is the architecture of images for the cluster on this machine.
const ownArch = "amd64"

// release holds the options of a release.
type release struct {
	layout, arches string
	is             version.Info
}

func (r *release) flags(f *flag.FlagSet) {
	f.StringVar(&r.layout, "layout", "", "write the images of a release to this folder, as an OCI layout")
	f.StringVar(&r.arches, "arch", ownArch, "architectures of a release, separated by commas")
	f.StringVar(&r.is.Version, "version", "dev", "version of a release")
	f.StringVar(&r.is.Commit, "commit", "", "commit that a release is made from")
	f.StringVar(&r.is.Date, "date", "", "when that commit was made, in RFC 3339")
}

// release writes the wanted images for every architecture into a layout that has nothing else in it.
func (b *build) release(ctx context.Context, r release, wanted []string) error {
	if err := os.RemoveAll(r.layout); err != nil {
		return fmt.Errorf("empty the layout: %w", err)
	}
	to, err := layout.Write(r.layout, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	for _, t := range targets {
		if !slices.Contains(wanted, t.name) {
			continue
		}
		start := time.Now()
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for arch := range strings.SplitSeq(r.arches, ",") {
			one := *b
			one.arch, one.is = arch, r.is
			if arch != ownArch {
				one.debs.Arch = arch
			}
			image, err := one.forRelease(ctx, t.make)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", t.name, arch, err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
				Platform: &v1.Platform{OS: "linux", Architecture: arch},
			}})
		}
		name := images.Repository(t.image)
		if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{images.RefName: name + ":" + r.is.Version})); err != nil {
			return fmt.Errorf("write %s: %w", t.name, err)
		}
		b.say("%s for %s done in %.1f s", name, r.arches, time.Since(start).Seconds())
	}
	return nil
}

func (b *build) forRelease(ctx context.Context, image func(*build, context.Context) (v1.Image, error)) (v1.Image, error) {
	if err := b.debs.Prepare(ctx); err != nil {
		return nil, err
	}
	return image(b, ctx)
}

// linked returns the flags of the linker.
func (b *build) linked() string {
	if b.is.Commit == "" {
		return "-s -w"
	}
	return "-s -w " + b.is.Flags()
}

// binaries returns the directory in which programs are built, one for each architecture and version.
func (b *build) binaries() string {
	name := "programs"
	if b.arch != ownArch {
		name += "-" + b.arch
	}
	if b.is.Commit != "" {
		name += "-release"
	}
	return filepath.Join(b.cache, name)
}

// labels returns the labels of an image. Only a release has a version: images of a cluster of one's own keep their digest from
// commit to commit unless something in them changed.
func (b *build) labels(title, description string) map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{prefix + "title": title}
	if b.is.Commit != "" {
		labels[prefix+"description"] = description
		labels[prefix+"version"] = b.is.Version
		labels[prefix+"revision"] = b.is.Commit
		labels[prefix+"created"] = b.is.Date
		labels[prefix+"licenses"] = "Apache-2.0"
		labels[prefix+"source"] = "https://github.com/berth-vm/berth"
	}
	return labels
}
