package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/dependencies"
	"github.com/berth-vm/berth/internal/testing/stores"
)

// worker is the binary as it ships.
var worker string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "worker")
	if err != nil {
		panic(err)
	}
	worker = filepath.Join(dir, "worker")
	build := exec.Command("go", "build", "-trimpath", "-o", worker, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestBinaryKnowsNoKubernetes(t *testing.T) {
	dependencies.Refuse(t, "k8s.io", "sigs.k8s.io", "kubevirt.io")
}

// object serves bytes in ranges.
func object(t *testing.T, p []byte) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(w, r, "disk", time.Time{}, bytes.NewReader(p))
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// valve is a way to a server that can be closed once so many bytes came through it.
type valve struct {
	net.Listener
	to string

	mu    sync.Mutex
	sent  int64
	limit int64         // hold back what comes after so many bytes
	full  chan struct{} // closed when that happens
	free  chan struct{} // closed to go on
}

func newValve(t *testing.T, to string) *valve {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{Listener: l, to: to}
	v.hold(1 << 62)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go v.carry(c)
		}
	}()
	return v
}

// hold makes the next n bytes pass and then waits. What was held back before continues.
func (v *valve) hold(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.free != nil {
		close(v.free)
	}
	v.sent, v.limit, v.full, v.free = 0, n, make(chan struct{}), make(chan struct{})
}

func (v *valve) carry(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", v.to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		io.Copy(s, c)
		s.(*net.TCPConn).CloseWrite()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Read(buf)
		v.pass(int64(n))
		if _, werr := c.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (v *valve) pass(n int64) {
	v.mu.Lock()
	v.sent += n
	over, free := v.sent > v.limit, v.free
	if over && v.sent-n <= v.limit {
		close(v.full)
	}
	v.mu.Unlock()
	if over {
		<-free
	}
}

// disk is half data, half holes.
func disk(n int) []byte {
	p := make([]byte, n)
	rng := rand.New(rand.NewPCG(4, 2))
	for at := 0; at < n; {
		run := min(rng.IntN(500_000), n-at)
		if rng.IntN(2) == 0 {
			for i := at; i < at+run; i++ {
				p[i] = byte(rng.Uint32() % 19)
			}
		}
		at += run
	}
	return p
}

// start runs the worker on a task and returns it with the place of its report.
func start(t *testing.T, k task.Task, args ...string) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	b, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	taskPath, reportPath := filepath.Join(dir, "task.json"), filepath.Join(dir, "report.json")
	if err := os.WriteFile(taskPath, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(worker, append([]string{"run", "--task", taskPath, "--report", reportPath, "--listen", "",
		"--checkpoint", "20ms"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, reportPath
}

func report(t *testing.T, path string) (r task.Report) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("report %q: %v", b, err)
	}
	return r
}

// finishes runs the worker to its end and compares the disk.
func finishes(t *testing.T, k task.Task, want []byte) task.Report {
	t.Helper()
	cmd, path := start(t, k)
	err := cmd.Wait()
	r := report(t, path)
	if err != nil || r.Outcome != task.Done {
		t.Fatalf("%v: %+v", err, r)
	}
	got, err := os.ReadFile(k.Target.Path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("the disk of %d bytes differs from the image of %d", len(got), len(want))
	}
	if names, _ := os.ReadDir(filepath.Dir(k.Target.Path)); len(names) != 1 {
		t.Errorf("left beside the disk: %v", names)
	}
	return r
}

func fetch(url, to string) task.Task {
	return task.Task{Version: task.Version, Volume: "ns/vol", Source: task.Source{HTTP: &task.HTTP{URL: url}},
		Target: task.Target{Path: to, Content: task.Disk}}
}

// TestKilled kills the worker with SIGKILL after so many bytes came to it; the next one must continue and make the same disk.
func TestKilled(t *testing.T) {
	raw := disk(64 << 20)
	for kind, c := range map[string]struct {
		bytes  int // of the source
		server string
		source func(host string) task.Source
	}{
		"raw": {len(raw), object(t, raw).Host, func(host string) task.Source {
			return task.Source{HTTP: &task.HTTP{URL: "http://" + host}}
		}},
		"gz": {len(gz(raw)), object(t, gz(raw)).Host, func(host string) task.Source {
			return task.Source{HTTP: &task.HTTP{URL: "http://" + host}}
		}},
		"container disk": {len(gz(raw)), push(t, gz(layer(raw))), func(host string) task.Source {
			return task.Source{Registry: &task.Registry{URL: "docker://" + host + "/disks/one:latest", PlainHTTP: true}}
		}},
		"S3": {len(raw), s3Object(t, raw), func(host string) task.Source {
			return task.Source{S3: &task.S3{URL: "http://" + host + "/bucket/disk.img"}}
		}},
		"GCS": {len(raw), gcsObject(t, raw), func(host string) task.Source {
			return task.Source{GCS: &task.GCS{URL: "http://" + host + "/bucket/disk.img"}}
		}},
	} {
		killed(t, kind, c.bytes, c.server, c.source, raw)
	}
}

// killed kills the worker at several places of one source.
func killed(t *testing.T, kind string, size int, server string, source func(host string) task.Source, want []byte) {
	t.Helper()
	v := newValve(t, server)
	for _, share := range []float64{0.01, 0.5, 0.8, 0.99} {
		t.Run(fmt.Sprintf("%s/%v", kind, share), func(t *testing.T) {
			k := task.Task{Version: task.Version, Volume: "ns/vol", Source: source(v.Addr().String()),
				Target: task.Target{Path: filepath.Join(t.TempDir(), "disk.img"), Content: task.Disk}}
			v.hold(int64(share * float64(size)))
			full := v.full
			cmd, _ := start(t, k)
			<-full
			waitForNote(t, k.Target.Path, share > 0.5, func() { v.hold(int64(size / 50)) })
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if _, err := os.Stat(k.Target.Path); err == nil {
				t.Fatal("half a disk has the name of a whole one")
			}
			v.hold(1 << 62)
			r := finishes(t, k, want)
			if again := r.Read - (int64(size) - r.Resumed); again > 2<<20 || share > 0.5 && r.Resumed == 0 {
				t.Errorf("read %d of %d bytes although %d were done", r.Read, size, r.Resumed)
			}
		})
	}
}

func gz(p []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	z.Write(p)
	z.Close()
	return b.Bytes()
}

// layer returns a container layer with a disk.
func layer(p []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "disk/disk.img", Size: int64(len(p)), Mode: 0o644})
	w.Write(p)
	w.Close()
	return b.Bytes()
}

// push puts an image of one layer into a registry and returns where that listens.
func push(t *testing.T, layer []byte) string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer, types.DockerLayer))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/disks/one:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return host
}

// s3Object puts a disk into an S3 server and returns where that listens.
func s3Object(t *testing.T, p []byte) string {
	t.Helper()
	return objectIn(t, stores.S3, p)
}

// gcsObject puts a disk into Google's storage, emulated, and returns where that listens.
func gcsObject(t *testing.T, p []byte) string {
	t.Helper()
	return objectIn(t, stores.GCS, p)
}

func objectIn(t *testing.T, kind string, p []byte) string {
	t.Helper()
	store := stores.New(t, kind)
	store.Put("bucket", "disk.img", "", p)
	s := httptest.NewServer(store)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// waitForNote waits until the worker has noted something, if it is going to. What came may be all but the beginning, for
// ranges are fetched side by side: then some more is let through now and then.
func waitForNote(t *testing.T, path string, sure bool, more func()) {
	t.Helper()
	note := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".berth-note")
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := range 24000 { // two minutes: a note waits for an fsync, and the disk may be busy with other tests
		if _, err := os.Stat(note); err == nil || !sure {
			return
		}
		if i%2000 == 1999 {
			more()
		}
		<-tick.C
	}
	t.Fatal("no note was kept")
}

// TestTerminated stops the worker the way a kubelet does: it must leave a report and what it has done.
func TestTerminated(t *testing.T) {
	raw := disk(48 << 20)
	v := newValve(t, object(t, raw).Host)
	k := fetch("http://"+v.Addr().String(), filepath.Join(t.TempDir(), "disk.img"))
	v.hold(30 << 20)
	full := v.full
	cmd, path := start(t, k, "--checkpoint", "1h")
	<-full
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("exit code 0 although the transfer is not done")
	}
	if r := report(t, path); r.Outcome != task.Retry || r.Reason != task.Interrupted {
		t.Errorf("report %+v", r)
	}
	v.hold(1 << 62)
	if r := finishes(t, k, raw); r.Resumed == 0 {
		t.Errorf("nothing was kept: %+v", r)
	}
}

func TestBadTask(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"no JSON": "{", "unknown field": `{"version":1,"secret":"x"}`} {
		path := filepath.Join(dir, "task")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"run", "--task", path, "--report", path + ".out", "--listen", ""}, nil, &stderr)
		if r := report(t, path+".out"); code != 1 || r.Reason != task.BadTask {
			t.Errorf("%s: exit %d, report %+v", name, code, r)
		}
	}
}

func TestLongReportFitsTheTerminationLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	labels := map[string]string{}
	for i := range 100 {
		labels[fmt.Sprint("label-", i)] = strings.Repeat("x", 60)
	}
	for name, r := range map[string]task.Report{
		"detail": {Version: task.Version, Outcome: task.Done, Detail: strings.Repeat("é", 9000)},
		"labels": {Version: task.Version, Outcome: task.Done, Labels: labels},
	} {
		var stderr bytes.Buffer
		leave(r, path, &stderr)
		if b, _ := os.ReadFile(path); len(b) > reportMax {
			t.Errorf("%s: a report of %d bytes", name, len(b))
		}
		report(t, path)
	}
}

func TestImportByHand(t *testing.T) {
	raw := disk(5 << 20)
	from := object(t, raw).String()
	to := filepath.Join(t.TempDir(), "disk.img")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"import", "--from", from, "--to", to, "--size", "8Mi"}, &stdout, &stderr)
	if code != 0 || !strings.Contains(stdout.String(), "raw, 8.0 MiB disk") || !strings.Contains(stderr.String(), "100.0%") {
		t.Fatalf("exit %d\n%s\n%s", code, stdout.String(), stderr.String())
	}
	if info, err := os.Stat(to); err != nil || info.Size() != 8<<20 {
		t.Errorf("%v, %v", info, err)
	}
	for _, args := range [][]string{{}, {"import"}, {"import", "--from", "ftp://x/y", "--to", to}, {"fly"},
		{"import", "--from", "x", "--to", "y", "--size", "-3"}} {
		if code := run(t.Context(), args, &stdout, &stderr); code != 2 {
			t.Errorf("%q: exit %d", args, code)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "1": 1, "10Gi": 10 << 30, "5k": 5000, "3Ti": 3 << 40} {
		if got, err := parseSize(text); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "1.5Gi", "-1", "0", "9999999Pi", "Gi"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
