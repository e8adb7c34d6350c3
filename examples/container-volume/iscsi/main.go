// Command iscsi makes a LUN with tgt for each volume it is asked for: a sparse file in a directory, exported by a tgtd that it starts
// beside itself. After a restart it exports what is in the directory again. With -template the LUN is a copy of a raw disk at a URL.
//
//	iscsi -address POD-IP [-listen :443] [-dir /data] [-template URL]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-vm/berth/examples/container-volume/serve"
)

const port = "3260"

func main() {
	t := &target{}
	listen := flag.String("listen", ":443", "where to be asked")
	flag.StringVar(&t.address, "address", "", "address that machines find the LUNs at")
	flag.StringVar(&t.dir, "dir", "/data", "directory of the LUNs")
	flag.StringVar(&t.template, "template", "", "URL of the raw disk that a new LUN is a copy of; empty: it is empty")
	flag.Parse()
	if err := run(t, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(t *target, listen string) error {
	if t.address == "" {
		return errors.New("say -address")
	}
	if err := os.MkdirAll(t.dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of LUNs: %w", err)
	}
	ended := make(chan error, 2)
	daemon := t.command("tgtd", "-f", "--iscsi", "portal="+net.JoinHostPort(t.address, port))
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("start tgtd: %w", err)
	}
	go func() { ended <- fmt.Errorf("tgtd ended: %w", daemon.Wait()) }()
	if err := t.await(); err != nil {
		return err
	}
	if err := t.exportAll(); err != nil {
		return err
	}
	go func() { ended <- serve.Run(listen, t) }()
	return <-ended // the kubelet starts us again
}

// target is tgtd and the directory it exports.
type target struct{ address, dir, template string }

func (t *target) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "TGT_IPC_SOCKET=/tmp/tgt.sock")
	c.Stderr = os.Stderr
	return c
}

func (t *target) admin(args ...string) (string, error) {
	out, err := t.command("tgtadm", append([]string{"--lld", "iscsi"}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("tgtadm %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// await waits until tgtd accepts commands.
func (t *target) await() error {
	var err error
	for range 100 {
		if _, err = t.admin("--op", "show", "--mode", "target"); err == nil {
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return err
}

// name of a volume: no other machine, and no other volume of it, has it.
func name(r serve.Request) string { return r.UID + "." + strings.ToLower(r.Volume) }

func iqn(name string) string { return "iqn.2026-01.dev.berth.example:" + name }

// Make copies or makes the disk under another name first: a file that is there is whole.
func (t *target) Make(ctx context.Context, r serve.Request) (string, error) {
	file := filepath.Join(t.dir, name(r)+".img")
	if _, err := os.Stat(file); err != nil {
		if err := t.fill(ctx, file+".part", r.Size); err != nil {
			return "", err
		}
		if err := os.Rename(file+".part", file); err != nil {
			return "", fmt.Errorf("name the LUN: %w", err)
		}
	}
	if err := t.export(name(r), file); err != nil {
		return "", err
	}
	return fmt.Sprintf("iscsi:\n  host:\n    name: %s\n    port: %q\n  portal: %s\nlun: 1\n", t.address, port, iqn(name(r))), nil
}

func (t *target) fill(ctx context.Context, file, size string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o640)
	if err != nil {
		return fmt.Errorf("make the LUN: %w", err)
	}
	defer f.Close()
	if t.template != "" {
		if err := download(ctx, t.template, f); err != nil {
			return err
		}
	}
	if size == "" {
		size = "1Gi"
	}
	wanted, err := resource.ParseQuantity(size)
	if err != nil {
		return fmt.Errorf("size %q: %w", size, err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("measure the LUN: %w", err)
	}
	if wanted.Value() > info.Size() {
		if err := f.Truncate(wanted.Value()); err != nil {
			return fmt.Errorf("size the LUN: %w", err)
		}
	}
	return f.Sync()
}

// download writes a disk to a file that is empty, and leaves holes where it has zeroes.
func download(ctx context.Context, url string, to *os.File) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("fetch the template: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("fetch the template: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch the template: %s", answer.Status)
	}
	block, zeroes, at := make([]byte, 1<<20), make([]byte, 1<<20), int64(0)
	for {
		n, err := io.ReadFull(answer.Body, block)
		if !bytes.Equal(block[:n], zeroes[:n]) {
			if _, err := to.WriteAt(block[:n], at); err != nil {
				return fmt.Errorf("write the template: %w", err)
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			if answer.ContentLength >= 0 && at != answer.ContentLength {
				return fmt.Errorf("fetch the template: %d of %d bytes", at, answer.ContentLength)
			}
			return to.Truncate(at)
		case err != nil:
			return fmt.Errorf("fetch the template: %w", err)
		}
	}
}

// exportAll exports what is there from before.
func (t *target) exportAll() error {
	files, err := filepath.Glob(filepath.Join(t.dir, "*.img"))
	if err != nil {
		return fmt.Errorf("list the LUNs: %w", err)
	}
	for _, file := range files {
		if err := t.export(strings.TrimSuffix(filepath.Base(file), ".img"), file); err != nil {
			return err
		}
	}
	return nil
}

// export makes a target for the file unless there is one.
func (t *target) export(name, file string) error {
	tid, next, err := t.find(name)
	if err != nil || tid != "" {
		return err
	}
	for _, order := range [][]string{
		{"--op", "new", "--mode", "target", "--tid", next, "-T", iqn(name)},
		{"--op", "new", "--mode", "logicalunit", "--tid", next, "--lun", "1", "-b", file},
		{"--op", "bind", "--mode", "target", "--tid", next, "-I", "ALL"},
	} {
		if _, err := t.admin(order...); err != nil {
			return err
		}
	}
	return nil
}

// find is the number of a target, empty if there is none, and one that is free.
func (t *target) find(name string) (tid, next string, err error) {
	out, err := t.admin("--op", "show", "--mode", "target")
	if err != nil {
		return "", "", err
	}
	last := 0
	for line := range strings.Lines(out) {
		rest, ok := strings.CutPrefix(line, "Target ")
		number, iq, found := strings.Cut(strings.TrimSpace(rest), ": ")
		if !ok || !found {
			continue
		}
		n, _ := strconv.Atoi(number)
		last = max(last, n)
		if iq == iqn(name) {
			tid = number
		}
	}
	return tid, strconv.Itoa(last + 1), nil
}

// Delete takes the target away and then the file, so that after a crash the file still says that there is something to delete.
func (t *target) Delete(_ context.Context, r serve.Request) error {
	tid, _, err := t.find(name(r))
	if err != nil {
		return err
	}
	if tid != "" {
		if _, err := t.admin("--op", "delete", "--force", "--mode", "target", "--tid", tid); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(t.dir, name(r)+".img")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete the LUN: %w", err)
	}
	return nil
}
