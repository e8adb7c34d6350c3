package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/hack/kubebox/internal/host"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

// Init returns the first process of a machine. It returns only with an error, and then the machine is gone.
func Init(args []string) error {
	if len(args) != 2 || os.Getpid() != 1 {
		return fmt.Errorf("%s is started by kubebox itself", Applet)
	}
	outside, name := plan.Layout{Dir: args[0]}, args[1]
	gate := os.NewFile(3, "gate")
	word, err := io.ReadAll(gate)
	if err != nil || string(word) != "go" {
		return fmt.Errorf("machine %s was given up before it started", name)
	}
	gate.Close()
	data, err := os.ReadFile(outside.Spec(name))
	if err != nil {
		return fmt.Errorf("read specification: %w", err)
	}
	var m plan.Machine
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("parse specification: %w", err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := mountAll(m, outside); err != nil {
		return err
	}
	if err := route(); err != nil {
		return err
	}
	disks := m.Disks
	if m.Pool != nil {
		disks = append(disks, *m.Pool)
	}
	for _, d := range disks {
		if err := host.AttachDisk(d, plan.Inside().Node(name, d.File())); err != nil {
			return fmt.Errorf("attach disk %s: %w", d.Name, err)
		}
	}
	return newSupervisor(m, plan.Inside()).run(context.Background())
}

// route lets the machine forward packets: between pods and the cluster network on a node, between everything on the control
// machine. Redirects are off because every node reaches every other through the control machine, always.
func route() error {
	for key, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
		"net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/default/send_redirects": "0",
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644); err != nil {
			return fmt.Errorf("set %s: %w", key, err)
		}
	}
	return nil
}

// A mounting is one call of mount(2).
type mounting struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mounting) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

// private are the directories that each node has for itself. Everything else is the machine's, which nodes only read.
var private = []string{"/var", "/opt", "/mnt", "/srv", "/tmp"}

// mountAll gives the machine a /proc, a /run and, if it is a node, directories of its own. The checkout may lie under one of the
// directories that are about to be covered, so the state directory is first carried over to the new /run.
func mountAll(m plan.Machine, outside plan.Layout) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the machine's mounts: %w", err)
	}
	stage := filepath.Join(outside.Dir, "machines", m.Name+".run")
	steps := []mounting{
		{"proc", "/proc", "proc", 0, ""},
		{"tmpfs", stage, "tmpfs", 0, "mode=755"},
		{outside.Dir, filepath.Join(stage, "kubebox"), "", unix.MS_BIND | unix.MS_REC, ""},
		{stage, "/run", "", unix.MS_MOVE, ""},
	}
	if m.Node != nil {
		steps = append(steps,
			// sysfs shows the network devices of the namespace it was mounted in; the cgroups below it are the machine's.
			mounting{"/sys/fs/cgroup", "/run/cgroup", "", unix.MS_BIND | unix.MS_REC, ""},
			mounting{"sysfs", "/sys", "sysfs", 0, ""},
			mounting{"/run/cgroup", "/sys/fs/cgroup", "", unix.MS_BIND | unix.MS_REC, ""},
		)
		for _, dir := range private {
			steps = append(steps, mounting{plan.Inside().Node(m.Name, dir), dir, "", unix.MS_BIND, ""})
		}
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return err
		}
	}
	if m.Node == nil {
		return nil
	}
	if err := unix.Unmount("/run/cgroup", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /run/cgroup: %w", err)
	}
	// Volumes that one container mounts must appear in the others, as on a machine that systemd started.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts among the node's containers: %w", err)
	}
	return nil
}

// NodeDirs returns the directories a node needs below its own before it starts, relative to it.
func NodeDirs() []string {
	dirs := []string{"disks", "etc", "var/lib/kubelet", "var/lib/containerd", "var/lib/cni", "var/log/pods", "var/log/containers",
		"var/tmp", "var/cache"}
	for _, d := range private {
		dirs = append(dirs, d[1:])
	}
	return dirs
}
