package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// hypervisor is a libvirtd of our own, in session mode: it needs no privilege and knows one domain.
type hypervisor struct {
	cmd  *exec.Cmd
	log  bytes.Buffer
	gone chan struct{} // closed when libvirtd has ended
	virt *libvirt.Libvirt
	// socket is where others reach it.
	socket string
}

// qemuConf switches off what needs privilege; the pod is the boundary already. QEMU's own sandbox needs none: it takes from
// QEMU the system calls that only somebody who has broken into it would make (new processes, other users, priorities).
const qemuConf = `stdio_handler = "file"
security_driver = "none"
security_default_confined = 0
namespaces = []
cgroup_controllers = []
dynamic_ownership = 0
remember_owner = 0
seccomp_sandbox = 1
`

// startHypervisor runs libvirtd and connects to it. dir is writable and ours; more goes into QEMU's part of the configuration.
func startHypervisor(ctx context.Context, dir, more string) (*hypervisor, error) {
	conf := filepath.Join(dir, "config", "libvirt")
	for _, d := range []string{conf, filepath.Join(dir, "runtime"), filepath.Join(dir, "cache")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make libvirt's directories: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(conf, "qemu.conf"), []byte(qemuConf+more), 0o600); err != nil {
		return nil, fmt.Errorf("configure libvirt: %w", err)
	}
	// libvirt moves no guest to the host that it is on, and takes the machine for the host: two launchers on nodes that were made
	// from one image, or on one node, have the same.
	id := fmt.Sprintf("host_uuid = %q\n", uuid.NewUUID())
	if err := os.WriteFile(filepath.Join(conf, "libvirtd.conf"), []byte(id), 0o600); err != nil {
		return nil, fmt.Errorf("configure libvirt: %w", err)
	}
	h := &hypervisor{gone: make(chan struct{}), socket: filepath.Join(dir, "runtime", "libvirt", "libvirt-sock")}
	h.cmd = exec.Command("/usr/sbin/libvirtd")
	h.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+filepath.Join(dir, "runtime"),
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	h.cmd.Stdout, h.cmd.Stderr = &h.log, &h.log
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start libvirtd: %w", err)
	}
	go func() {
		_ = h.cmd.Wait()
		close(h.gone)
	}()
	if err := h.connect(ctx, h.socket); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// starting is a hypervisor on its way.
type starting struct {
	done chan struct{}
	h    *hypervisor
	err  error
}

// startAside starts the hypervisor while something else is done. It takes about a second to look at what QEMU can do, and would
// begin with it only when it is given a machine.
func startAside(ctx context.Context, dir, more string) *starting {
	s := &starting{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if s.h, s.err = startHypervisor(ctx, dir, more); s.err == nil {
			_, _ = s.h.virt.ConnectGetDomainCapabilities(nil, nil, nil, nil, 0) // an error is one of the machine's too, and said there
		}
	}()
	return s
}

func (s *starting) wait() (*hypervisor, error) {
	<-s.done
	return s.h, s.err
}

func (s *starting) close() {
	if h, _ := s.wait(); h != nil {
		h.close()
	}
}

// connect tries until libvirtd answers: it has no way to say that it is ready.
func (h *hypervisor) connect(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		virt := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
		err := virt.ConnectToURI(libvirt.QEMUSession)
		if err == nil {
			h.virt = virt
			return nil
		}
		select {
		case <-tick.C:
		case <-h.gone:
			return fmt.Errorf("libvirtd ended: %s", bytes.TrimSpace(h.log.Bytes()))
		case <-ctx.Done():
			return fmt.Errorf("connect to libvirtd: %w", err)
		}
	}
}

// close ends libvirtd; a domain that still runs ends with the pod.
func (h *hypervisor) close() {
	if h.virt != nil {
		_ = h.virt.Disconnect()
	}
	_ = h.cmd.Process.Signal(os.Interrupt)
	select {
	case <-h.gone:
	case <-time.After(5 * time.Second):
		_ = h.cmd.Process.Kill()
	}
}

// ended turns the event that a domain stopped into how it ended. asked says whether we had asked for it.
func ended(detail libvirt.DomainEventStoppedDetailType, asked bool) launcherapi.Report {
	switch detail {
	case libvirt.DomainEventStoppedShutdown:
		if asked {
			return launcherapi.Report{End: launcherapi.Stopped, Detail: "the guest shut down as it was asked to"}
		}
		return launcherapi.Report{End: launcherapi.PoweredOff, Detail: "the guest powered off"}
	case libvirt.DomainEventStoppedDestroyed:
		if asked {
			return launcherapi.Report{End: launcherapi.Killed, Detail: "the guest did not shut down within its grace period and was switched off"}
		}
		return launcherapi.Report{End: launcherapi.Crashed, Detail: "the guest was destroyed"}
	case libvirt.DomainEventStoppedCrashed:
		return launcherapi.Report{End: launcherapi.Crashed, Detail: "the guest crashed"}
	case libvirt.DomainEventStoppedFailed:
		return launcherapi.Report{End: launcherapi.Crashed, Detail: "QEMU failed"}
	case libvirt.DomainEventStoppedMigrated:
		return launcherapi.Report{End: launcherapi.Moved, Detail: "the guest moved to another launcher"}
	case libvirt.DomainEventStoppedSaved, libvirt.DomainEventStoppedFromSnapshot:
	}
	return launcherapi.Report{End: launcherapi.Crashed, Detail: fmt.Sprintf("the guest stopped for libvirt's reason %d", detail)}
}

var errNoDomain = errors.New("libvirtd ended while the guest ran")
