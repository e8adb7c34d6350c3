//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/guest/pattern"
)

// patience is how long a command waits for a disk it names: a hotplugged disk needs one or two seconds under emulation.
const patience = 10 * time.Second

// verb is one word of the language. Its answer is printed after its own name and arguments.
type verb struct {
	usage string
	run   func(g *guest, args []string) (string, error)
}

// verbs are the commands of the guest. An unknown one, and a wrong number of arguments, is answered with an error line.
var verbs = map[string]verb{
	"disks":    {"", (*guest).disks},
	"sha256":   {"DISK [OFFSET LENGTH]", (*guest).sha256},
	"read":     {"DISK OFFSET LENGTH", (*guest).read},
	"write":    {"DISK OFFSET LENGTH SEED", (*guest).write},
	"verify":   {"DISK OFFSET LENGTH SEED", (*guest).verify},
	"churn":    {"DISK", (*guest).churn},
	"compare":  {"DISK", (*guest).compare},
	"calm":     {"DISK", (*guest).calm},
	"memory":   {"[BYTES]", (*guest).remember},
	"uptime":   {"", (*guest).uptime},
	"tick":     {"ADDRESS", (*guest).tick},
	"cat":      {"PATH", (*guest).cat},
	"get":      {"ADDRESS PATH", (*guest).get},
	"poweroff": {"", (*guest).poweroff},
	"reboot":   {"", (*guest).reboot},
	"crash":    {"", (*guest).crash},
}

// obey runs one line. It ignores blank lines and comments.
func (g *guest) obey(line string) {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	answer, err := g.run(strings.Fields(line))
	if err != nil {
		g.say("error: %s: %v", line, err)
		return
	}
	g.say("%s: %s", line, answer)
}

func (g *guest) run(words []string) (string, error) {
	v, ok := verbs[words[0]]
	if !ok {
		return "", errors.New("unknown command")
	}
	args := words[1:]
	most := len(strings.Fields(v.usage))
	least := len(strings.Fields(strings.Split(v.usage, "[")[0]))
	if len(args) != most && len(args) != least {
		return "", fmt.Errorf("usage: %s %s", words[0], v.usage)
	}
	return v.run(g, args)
}

func (g *guest) disks([]string) (string, error) {
	g.sayDisks()
	return strconv.Itoa(len(disks())), nil
}

// area is the part of a disk that a command names.
type area struct {
	file        *os.File
	off, length int64
}

// openArea opens DISK [OFFSET LENGTH] and checks that it lies on the disk. The kernel's cache of the disk is dropped first, so
// that a read returns the stored data, also if another machine wrote it.
func openArea(args []string, flag int) (area, error) {
	path, err := find(args[0], patience)
	if err != nil {
		return area{}, err
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return area{}, fmt.Errorf("open disk: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return area{}, fmt.Errorf("measure disk: %w", err)
	}
	a := area{file: f, length: size}
	if len(args) > 1 {
		a.off, a.length, err = parseRange(args[1], args[2], size)
		if err != nil {
			_ = f.Close()
			return area{}, err
		}
	}
	_ = unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0)
	return a, nil
}

func parseRange(offset, length string, size int64) (off, n int64, err error) {
	off, err = strconv.ParseInt(offset, 0, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("offset: %w", err)
	}
	n, err = strconv.ParseInt(length, 0, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("length: %w", err)
	}
	if off < 0 || n < 0 || off > size || n > size-off {
		return 0, 0, fmt.Errorf("%d bytes at %d are not on this disk of %d bytes", n, off, size)
	}
	return off, n, nil
}

func (a area) sha256() (string, error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(h, io.NewSectionReader(a.file, a.off, a.length), make([]byte, 1<<20)); err != nil {
		return "", fmt.Errorf("read disk: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (*guest) sha256(args []string) (string, error) {
	a, err := openArea(args, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.file.Close() }()
	return a.sha256()
}

// maxRead is the largest read that fits on one line of a console that people also read.
const maxRead = 4096

func (*guest) read(args []string) (string, error) {
	a, err := openArea(args, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.file.Close() }()
	if a.length > maxRead {
		return "", fmt.Errorf("%d bytes are too many to print, %d is the most: use sha256", a.length, maxRead)
	}
	b := make([]byte, a.length)
	if _, err := a.file.ReadAt(b, a.off); err != nil {
		return "", fmt.Errorf("read disk: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// write answers with the sha256 of what it wrote, after the disk has said that it is stored.
func (g *guest) write(args []string) (string, error) {
	seed, err := strconv.ParseUint(args[3], 0, 64)
	if err != nil {
		return "", fmt.Errorf("seed: %w", err)
	}
	a, err := openArea(args[:3], os.O_RDWR)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.file.Close() }()
	h := sha256.New()
	from := io.TeeReader(io.NewSectionReader(pattern.Stream(seed), 0, a.length), h)
	buf := make([]byte, 1<<20)
	for off := a.off; ; {
		n, err := io.ReadFull(from, buf)
		if n == 0 {
			break
		}
		if err := g.writeAt(a.file, buf[:n], off); err != nil {
			return "", fmt.Errorf("write disk: %w", err)
		}
		off += int64(n)
		if err != nil {
			break
		}
	}
	if err := a.file.Sync(); err != nil {
		return "", fmt.Errorf("flush disk: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeAt waits while the guest is frozen.
func (g *guest) writeAt(f *os.File, b []byte, off int64) error {
	if g.writes.frozen() {
		g.say("write waits for thaw")
	}
	defer g.writes.begin()()
	_, err := f.WriteAt(b, off)
	return err
}

// verify compares a part of a disk with the pattern and says where they first differ.
func (*guest) verify(args []string) (string, error) {
	seed, err := strconv.ParseUint(args[3], 0, 64)
	if err != nil {
		return "", fmt.Errorf("seed: %w", err)
	}
	a, err := openArea(args[:3], os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.file.Close() }()
	got, want := make([]byte, 1<<20), make([]byte, 1<<20)
	for done := int64(0); done < a.length; {
		n := min(int64(len(got)), a.length-done)
		if _, err := a.file.ReadAt(got[:n], a.off+done); err != nil {
			return "", fmt.Errorf("read disk: %w", err)
		}
		_, _ = pattern.Stream(seed).ReadAt(want[:n], done)
		for i := range got[:n] {
			if got[i] != want[i] {
				return "", fmt.Errorf("differs at %d", a.off+done+int64(i))
			}
		}
		done += n
	}
	return "same", nil
}

// get asks a web server for a page, and answers with the first line of what it says.
func (g *guest) get(args []string) (string, error) {
	c, err := net.DialTimeout("tcp", args[0], patience)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", args[1]); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(io.LimitReader(c, 4<<10)).ReadString('\n')
	return strings.TrimSpace(line), err
}

// cat prints a file of the cloud-init volume.
func (g *guest) cat(args []string) (string, error) {
	text, err := os.ReadFile(filepath.Join(cloudInitDir, filepath.Clean("/"+args[0])))
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(text) {
		g.say("%s| %s", args[0], bytes.TrimRight(line, "\r\n"))
	}
	return fmt.Sprintf("%d bytes", len(text)), nil
}
