package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sample is one run.
type sample struct {
	seconds float64
	rss     int64 // bytes at most, of the largest process; 0 if it was none of its own
}

// bench is one run of all measurements.
type bench struct {
	options
	images  *images
	out     string
	log     io.Writer
	web     *web
	hub     *hub
	xfs     string // where it is mounted
	cdi     string // the root filesystem of CDI's importer
	samples map[string][]sample
	began   time.Time
	closers []func() error
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

// prepare makes and serves what the works need.
func (b *bench) prepare(ctx context.Context, works []work) (err error) {
	letters := ""
	for _, w := range works {
		letters += w.letter[:1] + w.needs
	}
	if err := b.images.make(ctx, letters); err != nil {
		return err
	}
	if b.web, err = serveDir(ctx, b.images.dir); err != nil {
		return err
	}
	b.closers = append(b.closers, b.web.close)
	layers := map[string]string{}
	for _, w := range works {
		if w.registry {
			layers[w.letter] = b.images.path(w.letter + ".tar.gz")
		}
		if w.reflink {
			if err := b.mountXFS(ctx); err != nil {
				return err
			}
		}
	}
	if len(layers) > 0 {
		if b.hub, err = serveImages(ctx, b.images.dir, layers); err != nil {
			return err
		}
		b.closers = append(b.closers, b.hub.close)
	}
	if b.importer != "" {
		if err := b.unpackImporter(ctx); err != nil {
			return err
		}
	}
	return b.warm()
}

// mountXFS makes a filesystem that can share blocks, with the disk on it.
func (b *bench) mountXFS(ctx context.Context) error {
	image, dir := filepath.Join(b.out, "xfs.img"), filepath.Join(b.out, "xfs")
	err := shell(ctx, fmt.Sprintf(`set -e; PATH=$PATH:/usr/sbin:/sbin; rm -f '%[1]s'; truncate -s %[3]dM '%[1]s'
mkfs.xfs -q -m reflink=1 '%[1]s'; mkdir -p '%[2]s'; mount -o loop '%[1]s' '%[2]s'`, image, dir, b.disk+4096))
	if err != nil {
		return fmt.Errorf("mount an XFS filesystem, which only root can: %w (leave it out with -only)", err)
	}
	b.xfs = dir
	b.closers = append(b.closers, func() error {
		return errors.Join(shell(context.Background(), fmt.Sprintf("umount '%s'", dir)), os.Remove(dir), os.Remove(image))
	})
	return shell(ctx, fmt.Sprintf("cp --sparse=always '%s' '%s/c.raw' && sync '%[2]s/c.raw'", b.images.path("c.raw"), dir))
}

// warm reads every image once: the source is in memory for everyone.
func (b *bench) warm() error {
	entries, err := os.ReadDir(b.images.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		f, err := os.Open(b.images.path(e.Name()))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, struct{ io.Reader }{f})
		_ = f.Close() // only read
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) close() error {
	var errs []error
	for _, c := range slices.Backward(b.closers) {
		errs = append(errs, c())
	}
	return errors.Join(append(errs, os.RemoveAll(b.out))...)
}

// measure runs everyone in turn, so that whatever else the machine does hits all alike.
func (b *bench) measure(ctx context.Context, works []work) error {
	b.began = time.Now()
	for run := range b.runs {
		for _, w := range works {
			c := contender{name: ours, cmd: fmt.Sprintf(`exec '%s' import --quiet %s --to "$out"`, b.worker, w.ours), exact: w.exact}
			for _, c := range append([]contender{c}, w.others...) {
				s, err := b.one(ctx, w, c, run == 0 && c.exact)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.letter, c.name, err)
				}
				key := w.letter + "/" + c.name
				b.samples[key] = append(b.samples[key], s)
				fmt.Fprintf(b.log, "%d/%d %-7s %-24s %7.2f s %6s\n", run+1, b.runs, w.letter, c.name, s.seconds, mib(s.rss))
			}
		}
	}
	return nil
}

func mib(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}

// one runs one contender once, and removes what it made.
func (b *bench) one(ctx context.Context, w work, c contender, verify bool) (sample, error) {
	out := filepath.Join(b.out, "disk.img")
	if w.reflink {
		out = filepath.Join(b.xfs, "clone.img")
	}
	if err := shell(ctx, "sync"); err != nil { // what others left to be written is not this one's business
		return sample{}, err
	}
	s, err := apart(ctx, c, b.environment(out))
	if err == nil && verify {
		err = shell(ctx, fmt.Sprintf("cmp '%s' '%s'", out, b.images.path("c.raw")))
	}
	return s, errors.Join(err, os.RemoveAll(out), os.RemoveAll(out+".d"))
}

func (b *bench) environment(out string) []string {
	env := append(os.Environ(), "out="+out, "disk="+b.images.path("c.raw"), "xfs="+b.xfs, "web="+b.web.base,
		"cdi="+b.cdi, fmt.Sprintf("size=%dMi", b.disk))
	if b.hub != nil {
		env = append(env, "hub="+b.hub.host)
		for repo, digest := range b.hub.layers {
			env = append(env, "layer_"+repo+"="+digest.String())
		}
	}
	return env
}

func shell(ctx context.Context, script string) error {
	out, err := exec.CommandContext(ctx, "bash", "-c", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
