//go:build host

package main

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
)

// memoryMax is the promise: whatever the image's size.
const memoryMax = 128 << 20

// hugeVolume returns a directory with room for sparse disks far larger than this machine.
func hugeVolume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=600g", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return dir
}

// hugeQCOW2 writes an image of 256 GiB whose tables are all there. Every step-th cluster has data, in the opposite order of
// the disk, so that nothing can be taken together; compressed, or as holes of a file of some GiB.
func hugeQCOW2(t *testing.T, path string, step int, compressed bool) {
	t.Helper()
	const cluster, virtual = 64 << 10, 256 << 30
	const clusters, perTable = virtual / cluster, cluster / 8
	const l1, l2 = cluster, 2 * cluster
	const data = l2 + clusters*8
	var c bytes.Buffer
	w, _ := flate.NewWriter(&c, 9)
	w.Write(make([]byte, cluster))
	w.Close()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := bufio.NewWriterSize(f, 1<<20)
	head := make([]byte, l2)
	copy(head, "QFI\xfb")
	for off, v := range map[int]uint32{4: 3, 20: 16, 36: clusters / perTable, 56: 1, 96: 4, 100: 104} {
		binary.BigEndian.PutUint32(head[off:], v)
	}
	for off, v := range map[int]uint64{24: virtual, 40: l1, 48: data} {
		binary.BigEndian.PutUint64(head[off:], v)
	}
	for i := range clusters / perTable {
		binary.BigEndian.PutUint64(head[l1+i*8:], 1<<63|uint64(l2+i*cluster))
	}
	b.Write(head)
	n := clusters / step
	for i := range clusters {
		var e uint64
		if i%step == 0 {
			place := uint64(n - 1 - i/step)
			if e = 1<<63 | (data + 2*cluster + place*cluster); compressed {
				e = 1<<62 | (data + 2*cluster + place*512)
			}
		}
		binary.Write(b, binary.BigEndian, e)
	}
	if compressed {
		b.Write(make([]byte, 2*cluster))
		for range n {
			b.Write(append(c.Bytes(), make([]byte, 512-c.Len())...))
		}
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if !compressed {
		if err := f.Truncate(int64(data + 2*cluster + n*cluster)); err != nil {
			t.Fatal(err)
		}
	}
}

// hugeGzip writes a raw disk of 48 GiB, all zeroes, as many members of a gz file.
func hugeGzip(t *testing.T, path string) {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(make([]byte, 64<<20))
	w.Close()
	if err := os.WriteFile(path, bytes.Repeat(b.Bytes(), 768), 0o600); err != nil {
		t.Fatal(err)
	}
}

// watch returns the most memory a process had until it ended. What wait(2) says counts its parent's from before exec.
func watch(pid int, ended <-chan error) (peak int64, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return peak, err
		case <-tick.C:
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it is about to end
		}
		for line := range strings.Lines(string(b)) {
			var kib int64
			if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
				peak = max(peak, kib<<10)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	images := t.TempDir()
	hugeQCOW2(t, filepath.Join(images, "plain.qcow2"), 64, false)
	hugeQCOW2(t, filepath.Join(images, "compressed.qcow2"), 8, true)
	hugeGzip(t, filepath.Join(images, "raw.gz"))
	if err := os.WriteFile(filepath.Join(images, "sparse.raw"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(images, "sparse.raw"), 24<<30); err != nil {
		t.Fatal(err)
	}
	files := http.FileServer(http.Dir(images))
	ranged := httptest.NewServer(files)
	t.Cleanup(ranged.Close)
	once := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(filepath.Join(images, filepath.Base(r.URL.Path)))
		if err == nil {
			defer f.Close()
			io.Copy(w, f)
		}
	}))
	t.Cleanup(once.Close)
	for name, url := range map[string]string{
		"a plain qcow2 of 256 GiB":                ranged.URL + "/plain.qcow2",
		"a compressed qcow2 of 256 GiB":           ranged.URL + "/compressed.qcow2",
		"a compressed qcow2 of 256 GiB, streamed": once.URL + "/compressed.qcow2",
		"a raw disk of 24 GiB":                    ranged.URL + "/sparse.raw",
		"a gz of 48 GiB":                          ranged.URL + "/raw.gz",
	} {
		t.Run(name, func(t *testing.T) {
			k := fetch(url, filepath.Join(hugeVolume(t), "disk.img"))
			cmd, path := start(t, k)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			peak, err := watch(cmd.Process.Pid, ended)
			r := report(t, path)
			if err != nil || r.Outcome != task.Done {
				t.Fatalf("%v: %+v", err, r)
			}
			t.Logf("%d MiB at most for a disk of %d GiB, in %v", peak>>20, r.Virtual>>30, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			if peak > memoryMax {
				t.Errorf("%d bytes of memory", peak)
			}
		})
	}
}
