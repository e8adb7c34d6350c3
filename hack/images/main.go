// Command images makes the product's container images and the test guest, without a Docker daemon and without root:
//
//	images [-o DIR] berth|launcher|csi|makers|guest|guest-generic|all|cdi
//	images parts
//	images debian
//	images -layout DIR -arch amd64,arm64 -version V -commit C -date D berth|launcher|csi
//
// The second form makes the parts of "all" that have no program of the product in them, the guest and what is Debian's: mostly downloads,
// so that a first build can have them made while the processors are busy with something else. The third makes the disk of an ordinary Debian
// from Debian's packages, in DIR/debian, for the tests; it needs root. The fourth form is for a release: it writes
// one OCI layout, in which every image is an index of architectures.
//
// "all" leaves guest-generic out, which is for the few tests of SATA and USB disks, and CDI's programs ("cdi", or one of them by its name),
// which are for the tests beside CDI.
//
// It builds what changed and leaves the rest alone. Archives are written to DIR (bin/images), the guest's disks to DIR/guest. What is
// downloaded and what can be used again is kept in .cache/images. The same inputs give the same bytes.
//
// It does not load images into a cluster; that is kubebox's work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// build is one run of the program.
type build struct {
	root   string // the checkout
	out    string
	cache  string
	arch   string // that images are for, as Go and Debian call it
	is     version.Info
	debs   debian.Cache
	layers oci.Cache
	log    io.Writer

	cdiSteps []oci.Step // what the images of CDI's programs have in common; nil until one was made
}

// target is an image that can be made.
type target struct {
	name  string
	inAll bool
	make  func(*build, context.Context) (v1.Image, error)

	archive, image string // the file it is written to, and the name it has in there
}

// targets in the order in which they are made.
var targets = withCDI([]target{
	{"guest", true, (*build).cloudGuest, images.GuestArchive, images.Guest},
	{"berth", true, (*build).berth, images.BerthArchive, images.Berth},
	{"launcher", true, (*build).launcher, images.LauncherArchive, images.Launcher},
	{"csi", true, (*build).csi, images.CSIArchive, images.CSI},
	{"makers", true, (*build).makers, images.MakersArchive, images.Makers},
	{"guest-generic", false, (*build).genericGuest, images.GuestGenericArchive, images.GuestGeneric},
})

func run(ctx context.Context, args []string, log io.Writer) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	out := flags.String("o", "", "folder to write to (default bin/images in the checkout)")
	var r release
	r.flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	partsOnly, debianOnly := slices.Equal(flags.Args(), []string{"parts"}), slices.Equal(flags.Args(), []string{"debian"})
	var wanted []string
	var err error
	if !partsOnly && !debianOnly {
		if wanted, err = selectTargets(flags.Args()); err != nil {
			return err
		}
	}
	root, err := checkout(ctx)
	if err != nil {
		return err
	}
	if *out == "" {
		*out = filepath.Join(root, "bin", "images")
	}
	cache := filepath.Join(root, ".cache", "images")
	b := &build{
		root: root, out: *out, cache: cache, log: log, arch: ownArch, is: version.Info{Version: "dev"},
		debs: debian.Cache{Dir: filepath.Join(cache, "debs")}, layers: oci.Cache{Dir: filepath.Join(cache, "layers")},
	}
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	tools, err := debian.ReadList(b.source("packages"))
	if err != nil {
		return err
	}
	if err := debian.Require(ctx, log, tools); err != nil {
		return err
	}
	switch {
	case partsOnly:
		err = b.parts(ctx)
	case debianOnly:
		err = b.debianGuest(ctx)
	case r.layout != "":
		err = b.release(ctx, r, wanted)
	default:
		err = b.archives(ctx, wanted)
	}
	if err != nil {
		return err
	}
	return b.layers.Prune(time.Now().Add(-keepLayers))
}

// archives makes each image for this machine's cluster.
func (b *build) archives(ctx context.Context, wanted []string) error {
	for _, t := range targets {
		if !slices.Contains(wanted, t.name) {
			continue
		}
		start := time.Now()
		image, err := t.make(b, ctx)
		if err == nil {
			err = b.archive(t.archive, t.image, image)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		b.say("%s done in %.1f s", t.name, time.Since(start).Seconds())
	}
	return nil
}

// keepLayers is how long a layer that no build used stays: going back to an older commit is quick, the cache stays bounded.
const keepLayers = 3 * 24 * time.Hour

// lock keeps a second build of the same checkout waiting.
func (b *build) lock() (unlock func(), err error) {
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	f, err := os.Create(filepath.Join(b.cache, "lock"))
	if err != nil {
		return nil, fmt.Errorf("make lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("wait for another build: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

func selectTargets(args []string) ([]string, error) {
	var names, all []string
	for _, t := range targets {
		names = append(names, t.name)
		if t.inAll {
			all = append(all, t.name)
		}
	}
	usage := fmt.Errorf("say what to build: images [-o DIR] %s|all", strings.Join(names, "|"))
	if len(args) == 0 {
		return nil, usage
	}
	var wanted []string
	for _, a := range args {
		switch {
		case a == "all":
			wanted = append(wanted, all...)
		case a == "cdi":
			wanted = append(wanted, images.CDI...)
		case slices.Contains(names, a):
			wanted = append(wanted, a)
		default:
			return nil, fmt.Errorf("unknown image %q; %w", a, usage)
		}
	}
	return wanted, nil
}

// checkout returns the folder of the module this program belongs to.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if path != "github.com/berth-vm/berth" {
		return "", errors.New("run this program inside Berth's checkout")
	}
	return dir, nil
}

// source returns a file of the images folder.
func (b *build) source(elem ...string) string {
	return filepath.Join(append([]string{b.root, "images"}, elem...)...)
}

func (b *build) say(format string, args ...any) { _, _ = fmt.Fprintf(b.log, format+"\n", args...) }

// goBuild builds static programs of a module, which is a folder of the checkout, into a folder, each under the last element of its
// package's path.
func (b *build) goBuild(ctx context.Context, module, dir string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder for programs: %w", err)
	}
	// No version control stamp: a commit that changes no program must not change the image. A release says what it is.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=" + b.linked(), "-o", dir + string(filepath.Separator)}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = filepath.Join(b.root, module)
	// the compiler's own garbage collector costs a sixth of a build's time at its default
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+b.arch, "GOGC=400")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(packages, " "), err, out)
	}
	return nil
}

// archive writes an image and prints the result.
func (b *build) archive(file, name string, image v1.Image) error {
	path := filepath.Join(b.out, file)
	digest, changed, err := oci.Archive(path, name, image)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("measure archive: %w", err)
	}
	state := "unchanged"
	if changed {
		state = "written"
	}
	b.say("%s %s %s %s (%d MB)", name, digest, state, path, info.Size()/1e6)
	return nil
}
