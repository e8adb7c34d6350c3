//go:build host

package layercache

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyRead: a process that is handed a layer, even as root, can neither write to it nor have it opened for writing, nor
// change anything else of it.
func TestOnlyRead(t *testing.T) {
	runtime.LockOSThread() // the thread has mounts of its own, and ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	dir, view := t.TempDir(), t.TempDir()
	for _, m := range []struct {
		from, to string
		flags    uintptr
	}{{"", "/", unix.MS_REC | unix.MS_PRIVATE}, {dir, view, unix.MS_BIND}, {"", view, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY}} {
		if err := unix.Mount(m.from, m.to, "", m.flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(view, unix.MNT_DETACH) })
	c, err := Open(dir, view, 1<<30, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := packed(t, 1, map[string]int{"a": 1})
	one, other := pair(t)
	asked := make(chan error, 1)
	var f *os.File
	go func() {
		var err error
		_, f, err = Ask(t.Context(), one, b.digest(), int64(len(b.data)), b)
		asked <- errors.Join(err, one.Close())
	}()
	if err := c.Serve(t.Context(), other, "team", quick); err != nil { // on this thread, which sees the mount
		t.Fatal(err)
	}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if again, err := os.Open(path); err != nil {
		t.Errorf("it cannot be opened again for reading, as QEMU does: %v", err)
	} else {
		_ = again.Close()
	}
	for about, try := range map[string]func() error{
		"written to":       func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"opened again":     func() error { _, err := os.OpenFile(path, os.O_RDWR, 0); return err },
		"truncated":        func() error { return os.Truncate(path, 0) },
		"made writable":    func() error { return f.Chmod(0o666) },
		"given to another": func() error { return f.Chown(0, 0) },
		"given a note":     func() error { return unix.Fsetxattr(int(f.Fd()), "user.x", []byte("x"), 0) },
	} {
		if err := try(); err == nil {
			t.Errorf("a layer can be %s", about)
		} else if about != "written to" && !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: it is not the mount that refuses: %v", about, err)
		}
	}
}
