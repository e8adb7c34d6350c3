package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
)

// user is who a launcher runs as.
const user = "107"

// node is what libvirt calls the first disk's block node.
const node = "libvirt-1-format"

// The two ends of the link between the servers and the launcher.
const (
	hostAddress = "10.213.77.1"
	podAddress  = "10.213.77.2"
)

func host(port int) kubevirt.NetworkHost {
	return kubevirt.NetworkHost{Name: hostAddress, Port: new(intstr.FromInt(port))}
}

func login() *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: "login"} }

// namespace is a network namespace with a link to this one.
type namespace struct{ name string }

func newNamespace(ctx context.Context) (*namespace, error) {
	n := &namespace{fmt.Sprintf("berth-bench-%d", os.Getpid())}
	for _, args := range [][]string{
		{"ip", "netns", "add", n.name},
		{"ip", "link", "add", "bbhost", "type", "veth", "peer", "name", "bbpod", "netns", n.name},
		{"ip", "addr", "add", hostAddress + "/30", "dev", "bbhost"}, {"ip", "link", "set", "bbhost", "up"},
		{"ip", "-n", n.name, "addr", "add", podAddress + "/30", "dev", "bbpod"}, {"ip", "-n", n.name, "link", "set", "bbpod", "up"},
		{"ip", "-n", n.name, "link", "set", "lo", "up"},
	} {
		if err := command(ctx, args...); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

func (n *namespace) close() {
	_ = exec.Command("ip", "link", "del", "bbhost").Run()
	_ = exec.Command("ip", "netns", "del", n.name).Run()
}

func command(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

type bench struct {
	dir, launcher string
	net           *namespace
	seconds       time.Duration
}

// side is a QEMU that exports its block node.
type side struct {
	socket string
	close  func()
}

// compare measures both sides in turns of one pattern, so that what else the machine does befalls both alike, and the one that
// goes first changes. The median of each counts.
func (b *bench) compare(ctx context.Context, t target, rounds int) (with, without []float64, err error) {
	through, blockdevs, err := b.startLauncher(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	defer through.close()
	plain, err := b.startPlain(ctx, t, blockdevs)
	if err != nil {
		return nil, nil, err
	}
	defer plain.close()
	for _, p := range patterns {
		got := map[*side][]float64{}
		for i := range rounds {
			order := []*side{through, plain}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for _, s := range order {
				speed, err := b.fio(ctx, s, p)
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", p.name, err)
				}
				got[s] = append(got[s], speed)
			}
		}
		with, without = append(with, median(got[through])), append(without, median(got[plain]))
	}
	return with, without, nil
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// inside prepares the launcher's own view of the files, runs it as its user, and keeps its process's number.
const inside = `set -e
mount --make-rprivate /
mkdir -p "$1/over" && mount -t tmpfs tmpfs "$1/over" && mkdir "$1/over/up" "$1/over/work"
mount -t overlay overlay -o lowerdir=/etc,upperdir="$1/over/up",workdir="$1/over/work" /etc
printf 'root:x:0:0:root:/root:/bin/sh\nqemu:x:107:107:qemu:/tmp:/bin/sh\n' > /etc/passwd
mount -t tmpfs tmpfs /run
mkdir -p /etc/berth/machine /run/berth/state /run/berth/launcher /run/berth/meet /run/berth/mounts/disk
cp -r "$1/machine/." /etc/berth/machine
[ ! -d "$1/credentials" ] || cp -r "$1/credentials" /run/berth/mounts/disk/credentials
chown -R 107:107 /run/berth
# not by exec: a process that changes its user forgets that it is to end with its parent
setpriv --reuid=107 --regid=107 --clear-groups "$2" run
exit $?
`

func (b *bench) startLauncher(ctx context.Context, t target) (s *side, blockdevs []string, err error) {
	dir, err := os.MkdirTemp(b.dir, "launcher-")
	if err != nil {
		return nil, nil, err
	}
	if err := b.orders(dir, t); err != nil {
		return nil, nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command("ip", "netns", "exec", b.net.name, "unshare", "-m", "--kill-child", "-p", "-f", "--mount-proc", "sh", "-c", inside, "sh", dir, b.launcher)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	s = &side{close: func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }}
	defer func() {
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			s.close()
			err = fmt.Errorf("%w: %s", err, text)
		}
	}()
	var qemu int
	if err := eventually(ctx, "the launcher's QEMU", func() (err error) { qemu, blockdevs, err = findQEMU(cmd.Process.Pid); return err }); err != nil {
		return s, nil, err
	}
	virsh := func(args ...string) (string, error) {
		all := append([]string{"-t", strconv.Itoa(qemu), "-m", "-n", "-p", "setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups", "env",
			"HOME=" + launch.StateDir, "XDG_RUNTIME_DIR=" + launch.StateDir + "/runtime", "virsh", "-q", "-c", "qemu:///session"}, args...)
		out, err := exec.CommandContext(ctx, "nsenter", all...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("virsh %s: %w: %s", args[0], err, out)
		}
		return strings.TrimSpace(string(out)), nil
	}
	var domain string
	if err := eventually(ctx, "the guest", func() (err error) {
		if domain, err = virsh("list", "--name", "--state-running"); err == nil && domain == "" {
			err = errors.New("it does not run yet")
		}
		return err
	}); err != nil {
		return s, nil, err
	}
	if _, err := virsh("suspend", domain); err != nil {
		return s, nil, err
	}
	for _, text := range export(launch.StateDir + "/export") {
		if answer, err := virsh("qemu-monitor-command", domain, text); err != nil || strings.Contains(answer, `"error"`) {
			return s, nil, fmt.Errorf("export the disk: %w %s", err, answer)
		}
	}
	s.socket = fmt.Sprintf("/proc/%d/root%s/export", qemu, launch.StateDir)
	return s, blockdevs, nil
}

// orders writes what the controller would have the kubelet mount.
func (b *bench) orders(dir string, t target) error {
	m := launch.Machine{Namespace: "bench", Name: "vm", Emulate: true}
	m.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("64Mi"))}
	m.Spec.Volumes = []kubevirt.Volume{t.volume}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	files := map[string]string{"machine/" + launch.TaskFile: string(text), "machine/" + launch.GoFile: "yes"}
	for name, value := range t.files {
		files["credentials/"+name] = value
	}
	for name, value := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(value), 0o644)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o755)
}

// export are the commands that make QEMU serve the block node.
func export(socket string) []string {
	return []string{
		fmt.Sprintf(`{"execute": "nbd-server-start", "arguments": {"addr": {"type": "unix", "data": {"path": %q}}, "max-connections": 0}}`, socket),
		fmt.Sprintf(`{"execute": "block-export-add", "arguments": {"type": "nbd", "id": "bench", "node-name": %q, "name": "disk", "writable": true}}`, node),
	}
}

// findQEMU is the QEMU below a process, and what its command line says of block nodes.
func findQEMU(ancestor int) (pid int, blockdevs []string, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, nil, err
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // it may have ended
		args := strings.Split(string(text), "\x00")
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if !strings.HasSuffix(args[0], "qemu-system-x86_64") || !slices.Contains(args, "-blockdev") || !below(pid, ancestor) {
			continue
		}
		for i, a := range args {
			if a == "-blockdev" {
				blockdevs = append(blockdevs, args[i+1])
			}
		}
		return pid, blockdevs, nil
	}
	return 0, nil, errors.New("there is none yet")
}

func below(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(fields[1])
	}
	return pid == ancestor
}

// startPlain runs QEMU by hand with the same block nodes.
func (b *bench) startPlain(ctx context.Context, t target, blockdevs []string) (s *side, err error) {
	dir, err := os.MkdirTemp(b.dir, "plain-")
	if err != nil {
		return nil, err
	}
	args := []string{"netns", "exec", b.net.name, "setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups", "qemu-system-x86_64",
		"-nodefaults", "-display", "none", "-S", "-machine", "q35", "-m", "64", "-qmp", "unix:" + dir + "/qmp,server=on,wait=off"}
	if t.secret != "" {
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(t.secret), 0o644); err != nil {
			return nil, err
		}
		args = append(args, "-object", "secret,id=libvirt-1-storage-auth-secret0,format=base64,file="+dir+"/secret")
	}
	for _, d := range blockdevs {
		if strings.Contains(d, `"libvirt-1-`) {
			args = append(args, "-blockdev", strings.ReplaceAll(d, `"`+t.image+`"`, `"`+t.plain+`"`))
		}
	}
	args = append(args, "-device", "virtio-blk-pci,drive="+node+",share-rw=on")
	if err := errors.Join(os.Chmod(dir, 0o755), command(ctx, "chown", "-R", user+":"+user, dir)); err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "log")
	cmd := exec.Command("ip", args...)
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s = &side{socket: dir + "/export", close: func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }}
	defer func() {
		if err != nil {
			text, _ := os.ReadFile(log)
			s.close()
			err = fmt.Errorf("%w: %s", err, text)
		}
	}()
	var c net.Conn
	if err := eventually(ctx, "plain QEMU", func() (err error) { c, err = net.Dial("unix", dir+"/qmp"); return err }); err != nil {
		return s, err
	}
	defer c.Close()
	answers := json.NewDecoder(c)
	for _, text := range append([]string{"", `{"execute": "qmp_capabilities"}`}, export(s.socket)...) {
		if _, err := c.Write([]byte(text)); err != nil {
			return s, err
		}
		var answer map[string]any
		if err := answers.Decode(&answer); err != nil || answer["error"] != nil {
			return s, fmt.Errorf("export the disk: %w %v", err, answer)
		}
	}
	return s, nil
}

func eventually(ctx context.Context, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}
