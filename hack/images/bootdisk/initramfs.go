package bootdisk

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// File types of an archive entry's mode, as in stat(2).
const (
	modeDir  = 0o040000
	modeChar = 0o020000
	modeFile = 0o100000
)

// writeInitramfs writes the archive that the kernel unpacks as its root: our init, the modules and the list that init loads them by.
// More files are put into the root under their own names.
func writeInitramfs(path, initBinary string, k kernel, modules []string, more ...string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	a := &cpio{w: buffered}
	a.entry("dev", modeDir|0o755, nil)
	a.console("dev/console")
	for _, dir := range []string{"proc", "sys", "lib", "lib/modules"} {
		a.entry(dir, modeDir|0o755, nil)
	}
	var list strings.Builder
	for _, m := range modules {
		name := "lib/modules/" + m + ".ko"
		a.file(name, k.module(m), 0o644)
		fmt.Fprintf(&list, "/%s\n", name)
	}
	a.entry("modules", modeFile|0o644, []byte(list.String()))
	a.file("init", initBinary, 0o755)
	for _, file := range more {
		a.file(filepath.Base(file), file, 0o644)
	}
	a.end()
	if err := errors.Join(a.err, buffered.Flush(), f.Close()); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// cpio writes the "newc" format. Every field that could differ between two builds (times, owners, devices) is zero. The first error
// stays and makes the rest do nothing.
type cpio struct {
	w     io.Writer
	inode int
	err   error
}

func (c *cpio) file(name, from string, mode int) {
	content, err := os.ReadFile(from)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.entry(name, modeFile|mode, content)
}

// console is the device that the kernel opens for process 1 before that could make one: character device 5, 1.
func (c *cpio) console(name string) { c.write(name, modeChar|0o600, 5, 1, nil) }

func (c *cpio) entry(name string, mode int, content []byte) { c.write(name, mode, 0, 0, content) }

func (c *cpio) end() { c.write("TRAILER!!!", 0, 0, 0, nil) }

func (c *cpio) write(name string, mode, major, minor int, content []byte) {
	if c.err != nil {
		return
	}
	c.inode++
	var b bytes.Buffer
	b.WriteString("070701")
	// inode, mode, uid, gid, links, mtime, size, device (2), device of a node (2), length of the name with its zero, checksum
	for _, v := range []int{c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name) + 1, 0} {
		fmt.Fprintf(&b, "%08X", v)
	}
	b.WriteString(name + "\x00")
	pad4(&b)
	b.Write(content)
	pad4(&b)
	_, c.err = c.w.Write(b.Bytes())
}

func pad4(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}
