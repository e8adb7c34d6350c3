package beside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// Launcher is a launcher that runs, with its QEMU.
type Launcher struct {
	// QEMU is the process ID, and Args are its arguments.
	QEMU int
	Args []string
	// Root is where its files are seen from outside: put it before a path.
	Root string

	cmd *exec.Cmd
	log string
}

// Orders are the options of a launcher.
type Orders struct {
	Program string // the launcher, as Build made it
	Machine launcherapi.Machine
	// Dir has room for the launcher's files. What is below its directories "mounts", "volumes" and "copies" is in the launcher's
	// own directories of these names. Users other than root must be able to reach it.
	Dir string
}

// Build builds the launcher.
func Build(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "launcher")
	return program, Command(ctx, "go", "build", "-o", program, "./cmd/launcher")
}

// inside prepares the launcher's own view of the files, and runs it as its user.
const inside = `set -e
mount --make-rprivate /
mkdir -p "$1/over" && mount -t tmpfs tmpfs "$1/over" && mkdir "$1/over/up" "$1/over/work"
mount -t overlay overlay -o lowerdir=/etc,upperdir="$1/over/up",workdir="$1/over/work" /etc
printf 'root:x:0:0:root:/root:/bin/sh\nqemu:x:107:107:qemu:/tmp:/bin/sh\n' > /etc/passwd
mkdir -p /etc/berth/machine && cp -r "$1/machine/." /etc/berth/machine
mkdir -p "$1/mounts" "$1/volumes" "$1/copies" "$1/run" && mount -t tmpfs tmpfs "$1/run" && cd "$1/run"
mkdir -p berth/state berth/launcher berth/meet berth/mounts berth/volumes berth/copies
for d in mounts volumes copies; do mount --bind "$1/$d" berth/$d; done
chown -R 107:107 berth
cd / && mount --rbind "$1/run" /run
# not by exec: a process that changes its user forgets that it is to end with its parent
setpriv --reuid=107 --regid=107 --clear-groups "$2" run
exit $?
`

// Start starts a launcher and waits for its QEMU.
func (n *Namespace) Start(ctx context.Context, o Orders) (*Launcher, error) {
	text, err := json.Marshal(o.Machine)
	if err != nil {
		return nil, err
	}
	if err := Write(filepath.Join(o.Dir, "machine"), map[string]string{launcherapi.TaskFile: string(text), launcherapi.GoFile: "yes"}); err != nil {
		return nil, err
	}
	l := &Launcher{log: filepath.Join(o.Dir, "log")}
	log, err := os.Create(l.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	l.cmd = exec.Command("ip", "netns", "exec", n.name, "unshare", "-m", "--kill-child", "-p", "-f", "--mount-proc", "sh", "-c", inside, "sh", o.Dir, o.Program)
	l.cmd.Stdout, l.cmd.Stderr = log, log
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	if err := Eventually(ctx, "the launcher's QEMU", func() (err error) {
		l.QEMU, l.Args, err = findQEMU(l.cmd.Process.Pid)
		return err
	}); err != nil {
		return nil, l.Failed(err)
	}
	l.Root = fmt.Sprintf("/proc/%d/root", l.QEMU)
	return l, nil
}

// Failed ends the launcher, and adds what it said to the error.
func (l *Launcher) Failed(err error) error {
	l.Close()
	text, _ := os.ReadFile(l.log)
	return fmt.Errorf("%w: %s", err, text)
}

// Close ends the launcher and its QEMU.
func (l *Launcher) Close() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
}

// Blockdevs returns what its QEMU was told of block nodes.
func (l *Launcher) Blockdevs() (list []string) {
	for i, a := range l.Args {
		if a == "-blockdev" {
			list = append(list, l.Args[i+1])
		}
	}
	return list
}

// Virsh talks to its libvirt.
func (l *Launcher) Virsh(ctx context.Context, args ...string) (string, error) {
	all := append([]string{"-t", strconv.Itoa(l.QEMU), "-m", "-n", "-p", "setpriv", "--reuid=" + User, "--regid=" + User, "--clear-groups", "env",
		"HOME=" + launcherapi.StateDir, "XDG_RUNTIME_DIR=" + launcherapi.StateDir + "/runtime", "virsh", "-q", "-c", "qemu:///session"}, args...)
	out, err := exec.CommandContext(ctx, "nsenter", all...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("virsh %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// findQEMU returns the QEMU below a process that has disks, and how it was started.
func findQEMU(ancestor int) (pid int, args []string, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, nil, err
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // it may have ended
		args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if strings.HasSuffix(args[0], "qemu-system-x86_64") && slices.Contains(args, "-blockdev") && below(pid, ancestor) {
			return pid, args, nil
		}
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
