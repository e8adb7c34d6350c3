package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/bench/beside"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
)

const diskSize = 8 << 30

// dataAt is where the data is, behind the guest's own disk.
const dataAt = 1 << 30

type bench struct {
	dir              string
	net              *beside.Namespace
	launcher, worker string
	image            string // the qcow2 file
	size             int64  // of it
	server           *httptest.Server
}

func (b *bench) prepare(ctx context.Context, guest string, data, rate int64) (err error) {
	if b.launcher, err = beside.Build(ctx, b.dir); err != nil {
		return err
	}
	b.worker, b.image = filepath.Join(b.dir, "worker"), filepath.Join(b.dir, "image.qcow2")
	raw := filepath.Join(b.dir, "image.raw")
	if err := errors.Join(beside.Command(ctx, "go", "build", "-o", b.worker, "./cmd/worker"), beside.Command(ctx, "cp", "--sparse=always", guest, raw)); err != nil {
		return err
	}
	if err := enlarge(raw, data); err != nil {
		return err
	}
	if err := errors.Join(beside.Command(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, b.image), os.Remove(raw)); err != nil {
		return err
	}
	info, err := os.Stat(b.image)
	if err != nil {
		return err
	}
	b.size = info.Size()
	line := &line{rate: rate}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		http.ServeFile(&paced{w, line}, r, b.image)
	}))
	return nil
}

func enlarge(raw string, data int64) error {
	f, err := os.OpenFile(raw, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	block, noise := make([]byte, 1<<20), rand.NewChaCha8([32]byte{})
	for at := int64(0); at < data && err == nil; at += int64(len(block)) {
		_, _ = noise.Read(block)
		_, err = f.WriteAt(block, dataAt+at)
	}
	return errors.Join(err, f.Truncate(diskSize), f.Sync(), f.Close())
}

// line is the network link that all connections to the server share.
type line struct {
	rate int64 // bytes a second
	mu   sync.Mutex
	free time.Time // when it is free again
}

// queued is how long the link continues to send when the server's process is not given a processor in time: without it a busy
// machine would make the line slower.
const queued = 100 * time.Millisecond

func (l *line) take(n int) {
	l.mu.Lock()
	now := time.Now()
	if idle := now.Add(-queued); l.free.Before(idle) {
		l.free = idle
	}
	l.free = l.free.Add(time.Duration(int64(n) * int64(time.Second) / l.rate))
	wait := l.free.Sub(now)
	l.mu.Unlock()
	time.Sleep(wait) //nolint:forbidigo // it is what the line is: slow
}

type paced struct {
	http.ResponseWriter
	line *line
}

func (p *paced) Write(b []byte) (int, error) {
	p.line.take(len(b))
	return p.ResponseWriter.Write(b)
}

// filling is a worker that runs.
type filling struct {
	dir, disk string
	cmd       *exec.Cmd
	report    string
	begin     time.Time
}

// fill starts a worker, as the launcher's user: in a cluster they have the same.
func (b *bench) fill(bootEarly bool) (*filling, error) {
	dir, err := beside.Room(b.dir, "machine")
	if err != nil {
		return nil, err
	}
	f := &filling{dir: dir, disk: filepath.Join(dir, "volumes", "root", "disk.img"), report: filepath.Join(dir, "volumes", "report")}
	k := task.Task{Version: task.Version, Volume: "bench/root", Claim: "claim", Early: bootEarly, Source: task.Source{HTTP: &task.HTTP{URL: b.server.URL}},
		Target: task.Target{Path: f.disk, Content: task.Disk}}
	text, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	orders := filepath.Join(dir, "task")
	if err := errors.Join(os.MkdirAll(filepath.Dir(f.disk), 0o755), os.WriteFile(orders, text, 0o644),
		beside.Command(context.Background(), "chown", "-R", beside.User+":"+beside.User, filepath.Join(dir, "volumes"))); err != nil {
		return nil, err
	}
	syscall.Sync() // what the one before wrote is not to be written during this one
	f.cmd = exec.Command("setpriv", "--reuid="+beside.User, "--regid="+beside.User, "--clear-groups", b.worker, "run", "--task", orders, "--report", f.report, "--listen", "")
	f.cmd.Stderr = os.Stderr
	f.begin = time.Now()
	return f, f.cmd.Start()
}

// end waits for the worker.
func (f *filling) end() (task.Report, time.Duration, error) {
	err := f.cmd.Wait()
	d := time.Since(f.begin)
	var r task.Report
	text, readErr := os.ReadFile(f.report)
	if err = errors.Join(err, readErr); err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && r.Outcome != task.Done {
		err = fmt.Errorf("the worker says %+v", r)
	}
	return r, d, err
}

// imports measures an import by itself, and then a guest on the disk that it made.
func (b *bench) imports(ctx context.Context, t *took) error {
	f, err := b.fill(false)
	if err != nil {
		return err
	}
	defer os.RemoveAll(f.dir)
	_, d, err := f.end()
	if err != nil {
		return err
	}
	t.alone = append(t.alone, d)
	begin := time.Now()
	l, err := b.start(ctx, f.dir)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := firstLine(ctx, f.dir); err != nil {
		return l.Failed(err)
	}
	t.local = append(t.local, time.Since(begin))
	return nil
}

// boots measures a guest that boots while its disk is imported.
func (b *bench) boots(ctx context.Context, t *took) error {
	f, err := b.fill(true)
	if err != nil {
		return err
	}
	defer os.RemoveAll(f.dir)
	if err := beside.Eventually(ctx, "the disk to be served", func() error {
		_, err := os.Lstat(earlyboot.Socket(f.disk))
		return err
	}); err != nil {
		return errors.Join(err, f.cmd.Process.Kill(), f.cmd.Wait())
	}
	l, err := b.start(ctx, f.dir)
	if err != nil {
		return errors.Join(err, f.cmd.Process.Kill(), f.cmd.Wait())
	}
	defer l.Close()
	if err := firstLine(ctx, f.dir); err != nil {
		return errors.Join(l.Failed(err), f.cmd.Process.Kill(), f.cmd.Wait())
	}
	first := time.Since(f.begin)
	if _, err := os.Stat(f.disk); err == nil {
		return errors.Join(errors.New("the import was done before the guest's first line: have more -data, or less -rate"), f.cmd.Wait())
	}
	r, d, err := f.end() // when the guest has the disk itself
	if err != nil {
		return err
	}
	t.early, t.together, t.read = append(t.early, first), append(t.together, d), append(t.read, r.Read)
	return nil
}

func (b *bench) start(ctx context.Context, dir string) (*beside.Launcher, error) {
	m := launcherapi.Machine{Namespace: "bench", Name: "vm", Emulate: true}
	m.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("128Mi"))}
	m.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "root"}}}}
	return b.net.Start(ctx, beside.Orders{Program: b.launcher, Machine: m, Dir: dir})
}

func firstLine(ctx context.Context, dir string) error {
	return beside.Eventually(ctx, "the guest's first line", func() error {
		text, err := os.ReadFile(filepath.Join(dir, "log"))
		if err == nil && !bytes.Contains(text, []byte("berth-guest:")) {
			err = errors.New("it has not come")
		}
		return err
	})
}
