//go:build host

package launcher

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/testing/hosttool"
)

// asLauncher in the environment makes this program a launcher: it runs in namespaces of its own, where the launcher's paths are
// its own too.
const asLauncher = "BERTH_TEST_LAUNCHER"

func TestMain(m *testing.M) {
	if os.Getenv(asLauncher) != "" {
		os.Exit(beLauncher())
	}
	if os.Getenv(asPeer) != "" {
		os.Exit(bePeer())
	}
	os.Exit(m.Run())
}

// beLauncher does what cmd/launcher does, but that its answers and its report are files of the test.
func beLauncher() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l := &Launcher{Host: domain.Probe(), Guest: os.Stdout, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+launcherapi.ReturnsPath, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(l.Returns()) })
	door, err := net.Listen("unix", "/run/berth/returns.sock")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { _ = http.Serve(door, mux) }()
	r := l.Run(ctx)
	if err := r.Write("/run/berth/report"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// world is a network with two nodes that share one directory of disks.
type world struct {
	t      testing.TB
	dir    string
	name   string
	shared string
	fill   func(dir string) // puts disks into the claims of a machine that is started; nil: there are none
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-move-") // unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, name: fmt.Sprintf("bm%d", os.Getpid()), shared: filepath.Join(dir, "disks")}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.shared, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"a", "b"} {
		ns := w.name + n
		hosttool.Run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
		hosttool.Run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	}
	hosttool.Run(t, "ip", "link", "add", "mv0", "netns", w.name+"a", "type", "veth", "peer", "name", "mv0", "netns", w.name+"b")
	for i, n := range []string{"a", "b"} {
		hosttool.Run(t, "ip", "-n", w.name+n, "addr", "add", fmt.Sprintf("10.98.0.%d/24", i+1), "dev", "mv0")
		hosttool.Run(t, "ip", "-n", w.name+n, "link", "set", "mv0", "up")
	}
	return w
}

// pod is a launcher in its pod.
type pod struct {
	t       testing.TB
	dir     string
	cmd     *exec.Cmd
	address string
	lines   chan string // what its guest says
	ended   chan struct{}
	mu      sync.Mutex
	log     strings.Builder
}

// enter is a shell's program: the pod's directories, and then the launcher as the user of a pod. The shell buries the orphans.
const enter = `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs none /run && mkdir -p /run/berth && mount --rbind "$1" /run/berth &&
mkdir -p /run/netns /etc/berth /dev/fdset 2>/dev/null; mount -t tmpfs -o mode=777 none /dev/fdset && mkdir -p /run/berth/volumes/data && mount --bind "$2" /run/berth/volumes/data &&
mount -t tmpfs none /etc/berth && mkdir /etc/berth/machine && mount --bind "$3" /etc/berth/machine && mount --bind "$4" /etc/passwd &&
setpriv --reuid 107 --regid 107 --clear-groups --inh-caps=-all "$5" & wait $!`

// launch starts a launcher for the machine on node a or b.
func (w *world) launch(name, at string, m launcherapi.Machine) *pod {
	w.t.Helper()
	dir := filepath.Join(w.dir, name)
	n := &pod{t: w.t, dir: dir, lines: make(chan string, 10_000), ended: make(chan struct{}),
		address: fmt.Sprintf("10.98.0.%d:%d", at[0]-'a'+1, launcherapi.MovePort)}
	run := filepath.Join(dir, "run")
	for _, d := range []string{"run/volumes/data", "run/volumes/local", "run/volumes/more", "run/meet", "run/launcher", "run/move", "run/state/kernel", "orders"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	built := "../../bin/images/guest"
	hosttool.Run(w.t, "cp", filepath.Join(built, "vmlinuz"), filepath.Join(built, "initrd"), filepath.Join(run, "state/kernel"))
	passwd := filepath.Join(dir, "passwd")
	n.write(passwd, []byte("root:x:0:0::/root:/bin/sh\nqemu:x:107:107::/run/berth:/bin/sh\n"))
	text, err := json.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	n.order(launcherapi.TaskFile, text)
	n.order(launcherapi.GoFile, []byte("yes"))
	if w.fill != nil && m.Incoming == "" {
		w.fill(filepath.Join(run, "volumes"))
	}
	hosttool.Run(w.t, "chown", "-R", "107:107", run)
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	program := filepath.Join(dir, "launcher")
	hosttool.Run(w.t, "cp", self, program)
	n.cmd = exec.Command("ip", "netns", "exec", w.name+at, "unshare", "-m", "-u", "-p", "-f", "--kill-child", "bash", "-c", enter, "enter",
		run, w.shared, filepath.Join(dir, "orders"), passwd, program)
	n.cmd.Env = append(os.Environ(), asLauncher+"=1")
	n.start()
	return n
}

func (n *pod) write(path string, text []byte) {
	n.t.Helper()
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		n.t.Fatal(err)
	}
}

func (n *pod) order(file string, text []byte) { n.write(filepath.Join(n.dir, "orders", file), text) }

func (n *pod) start() {
	n.t.Helper()
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd.Stderr = n
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			_, _ = n.Write([]byte("  | " + s.Text() + "\n"))
			if line, ok := strings.CutPrefix(strings.TrimSpace(s.Text()), "berth-guest: "); ok {
				n.lines <- line
			}
		}
	}()
	go func() {
		<-read
		_ = n.cmd.Wait()
		close(n.ended)
	}()
	n.t.Cleanup(func() {
		n.kill()
		if n.t.Failed() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.t.Logf("%s:\n%s", n.dir, n.log.String())
		}
	})
}

func (n *pod) Write(text []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(text)
}

// kill ends the launcher and everything in it, as a node does that loses power: the first process of its namespace takes all the
// others with it.
func (n *pod) kill() {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n.cmd.Process.Pid, n.cmd.Process.Pid))
	for _, child := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	<-n.ended
}

// tell types a command at the guest's console and returns its answer.
func (n *pod) tell(command string) string {
	n.t.Helper()
	c, err := net.Dial("unix", filepath.Join(n.dir, "run/launcher/console.sock"))
	if err != nil {
		n.t.Fatalf("console of %s: %v", n.dir, err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, command+"\n"); err != nil {
		n.t.Fatal(err)
	}
	return n.expect(command + ": ")
}

func (n *pod) expect(prefix string) string {
	n.t.Helper()
	late := time.After(3 * time.Minute)
	for {
		select {
		case line := <-n.lines:
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return rest
			}
			if strings.HasPrefix(line, "error: "+prefix) {
				n.t.Fatalf("the guest of %s says %s", n.dir, line)
			}
		case <-n.ended:
			n.t.Fatalf("%s ended before its guest said %q", n.dir, prefix)
		case <-late:
			n.t.Fatalf("the guest of %s did not say %q", n.dir, prefix)
		}
	}
}

func (n *pod) returns() launcherapi.Returns {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(n.dir, "run/returns.sock"))
	}}}
	var r launcherapi.Returns
	reply, err := client.Get("http://launcher" + launcherapi.ReturnsPath)
	if err != nil {
		return r
	}
	defer func() { _ = reply.Body.Close() }()
	_ = json.NewDecoder(reply.Body).Decode(&r)
	return r
}

// stage waits until the launcher is at one of the stages of a move.
func (n *pod) stage(want ...launcherapi.MoveStage) launcherapi.Moving {
	n.t.Helper()
	return n.of("", want...)
}

// of is stage for one move.
func (n *pod) of(id string, want ...launcherapi.MoveStage) launcherapi.Moving {
	n.t.Helper()
	late := time.After(3 * time.Minute)
	for {
		r := n.returns()
		for _, s := range want {
			if r.Move != nil && r.Move.Stage == s && (id == "" || r.Move.ID == id) {
				return *r.Move
			}
		}
		select {
		case <-n.ended:
			n.t.Fatalf("%s ended before its move was at %v", n.dir, want)
		case <-late:
			n.t.Fatalf("%s: its move is at %+v, not at %v", n.dir, r.Move, want)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sends waits until a part of the guest is on its way.
func (n *pod) sends() {
	n.t.Helper()
	for late := time.After(3 * time.Minute); ; {
		if m := n.stage(launcherapi.MoveSends, launcherapi.MoveFailed); m.Sent > 0 {
			return
		} else if m.Stage == launcherapi.MoveFailed {
			n.t.Fatalf("%s: %s", n.dir, m.Detail)
		}
		select {
		case <-late:
			n.t.Fatalf("%s sends nothing", n.dir)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// report waits for the launcher's end.
func (n *pod) report() launcherapi.Report {
	n.t.Helper()
	select {
	case <-n.ended:
	case <-time.After(time.Minute):
		n.t.Fatalf("%s does not end", n.dir)
	}
	var r launcherapi.Report
	text, err := os.ReadFile(filepath.Join(n.dir, "run/report"))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		n.t.Fatal(err)
	}
	return r
}

// keys gives both sides theirs, as the controller makes them.
func keys(t testing.TB, id string, source, target *pod) {
	t.Helper()
	now := time.Now()
	authority, err := pki.New("move", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for n, use := range map[*pod]x509.ExtKeyUsage{source: x509.ExtKeyUsageClientAuth, target: x509.ExtKeyUsageServerAuth} {
		pair, err := authority.Issue(pki.Leaf{Name: "move", DNSNames: []string{id}, Use: use, Lasts: time.Hour}, now)
		if err != nil {
			t.Fatal(err)
		}
		side := map[x509.ExtKeyUsage]string{x509.ExtKeyUsageClientAuth: launcherapi.MoveSource, x509.ExtKeyUsageServerAuth: launcherapi.MoveTarget}[use]
		for file, text := range map[string][]byte{side + ".crt": pair.Certificate, side + ".key": pair.Key, "ca.crt": pki.PEM(authority.Certificate().Raw)} {
			n.write(filepath.Join(n.dir, "run/move", file), text)
		}
	}
	for _, n := range []*pod{source, target} {
		hosttool.Run(t, "chown", "-R", "107:107", filepath.Join(n.dir, "run/move"))
	}
}

func (n *pod) move(o launcherapi.Move) {
	n.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.order(launcherapi.MoveFile, text)
}
