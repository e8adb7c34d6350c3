// Package libvirtd runs a libvirtd for one guest and connects to it.
//
// It does not know what the guest is: the domain comes as a document from package domain, and its events go to the caller.
package libvirtd

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// Daemon is a libvirtd of this pod. It runs in session mode, which needs no privilege, and has one domain.
type Daemon struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	Gone   chan struct{} // closed when libvirtd has ended
	Virt   *libvirt.Libvirt
	Socket string // the path of its socket
}

// qemuConf switches off what needs privilege; the pod is the boundary already. QEMU's own sandbox needs none: it denies
// QEMU the system calls that only an attacker in it would make (new processes, other users, priorities).
const qemuConf = `stdio_handler = "file"
security_driver = "none"
security_default_confined = 0
namespaces = []
cgroup_controllers = []
dynamic_ownership = 0
remember_owner = 0
seccomp_sandbox = 1
`

// Start runs libvirtd with its files in dir and connects to it. more is added to qemu.conf.
func Start(ctx context.Context, dir, more string) (*Daemon, error) {
	conf := filepath.Join(dir, "config", "libvirt")
	for _, d := range []string{conf, filepath.Join(dir, "runtime"), filepath.Join(dir, "cache")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make libvirt's directories: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(conf, "qemu.conf"), []byte(qemuConf+more), 0o600); err != nil {
		return nil, fmt.Errorf("configure libvirt: %w", err)
	}
	// libvirt refuses to move a guest to the host that it is on. It identifies a host by the node's UUID, which is the same for two launchers
	// of one node, and for nodes that were made from one image: so each libvirtd gets a UUID of its own.
	id := fmt.Sprintf("host_uuid = %q\n", uuid.NewUUID())
	if err := os.WriteFile(filepath.Join(conf, "libvirtd.conf"), []byte(id), 0o600); err != nil {
		return nil, fmt.Errorf("configure libvirt: %w", err)
	}
	h := &Daemon{Gone: make(chan struct{}), Socket: filepath.Join(dir, "runtime", "libvirt", "libvirt-sock")}
	h.cmd = exec.Command("/usr/sbin/libvirtd")
	h.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+filepath.Join(dir, "runtime"),
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	h.cmd.Stdout, h.cmd.Stderr = &h.output, &h.output
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start libvirtd: %w", err)
	}
	go func() {
		_ = h.cmd.Wait()
		close(h.Gone)
	}()
	if err := h.connect(ctx, h.Socket); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// starting is a libvirtd that is being started.
type starting struct {
	done chan struct{}
	h    *Daemon
	err  error
}

// StartAside starts libvirtd in the background. libvirtd takes about a second to find out what QEMU can do, which it would otherwise do when
// it gets its first domain.
func StartAside(ctx context.Context, dir, more string) *starting {
	s := &starting{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if s.h, s.err = Start(ctx, dir, more); s.err == nil {
			_, _ = s.h.Virt.ConnectGetDomainCapabilities(nil, nil, nil, nil, 0) // if this fails, starting the domain fails too and says why
		}
	}()
	return s
}

// Wait returns the libvirtd when it runs.
func (s *starting) Wait() (*Daemon, error) {
	<-s.done
	return s.h, s.err
}

// Close ends the libvirtd, if it was started.
func (s *starting) Close() {
	if h, _ := s.Wait(); h != nil {
		h.Close()
	}
}

// connect tries until libvirtd answers: it does not report that it is ready.
func (h *Daemon) connect(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		virt := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
		err := virt.ConnectToURI(libvirt.QEMUSession)
		if err == nil {
			h.Virt = virt
			return nil
		}
		select {
		case <-tick.C:
		case <-h.Gone:
			return fmt.Errorf("libvirtd ended: %s", bytes.TrimSpace(h.output.Bytes()))
		case <-ctx.Done():
			return fmt.Errorf("connect to libvirtd: %w", err)
		}
	}
}

// Close ends libvirtd; a domain that still runs ends with the pod.
func (h *Daemon) Close() {
	if h.Virt != nil {
		_ = h.Virt.Disconnect()
	}
	_ = h.cmd.Process.Signal(os.Interrupt)
	select {
	case <-h.Gone:
	case <-time.After(5 * time.Second):
		_ = h.cmd.Process.Kill()
	}
}

// Ended returns the report of a machine whose domain has stopped. asked says whether the launcher had told the guest to stop.
func Ended(detail libvirt.DomainEventStoppedDetailType, asked bool) launcherapi.Report {
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

// ErrEnded says that libvirtd has ended, and the guest with it.
var ErrEnded = errors.New("libvirtd ended while the guest ran")

// Tell runs a command of QEMU's human monitor. Whatever the command prints is an error, but for the word that something was removed.
func (h *Daemon) Tell(domain, line string) error {
	command, err := json.Marshal(map[string]any{
		"execute": "human-monitor-command", "arguments": map[string]string{"command-line": line}})
	if err != nil {
		return err
	}
	answer, err := h.Virt.Run(domain, command)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, answer)
	}
	var said struct {
		Return string `json:"return"`
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if text := strings.TrimSpace(said.Return); text != "" && !strings.HasSuffix(text, "removed") {
		return fmt.Errorf("%s: %s", line, text)
	}
	return nil
}

// AddSecret gives libvirt a secret under a name, for a kind of server that libvirt calls by that usage type. It stays in libvirtd's memory,
// and no client can read it.
func (h *Daemon) AddSecret(usageType, name string, value []byte) error {
	type usage struct {
		Type   string `xml:"type,attr"`
		Target string `xml:"target,omitempty"` // iSCSI's word
		Name   string `xml:"name,omitempty"`   // Ceph's word
	}
	doc := struct {
		XMLName   xml.Name `xml:"secret"`
		Ephemeral string   `xml:"ephemeral,attr"`
		Private   string   `xml:"private,attr"`
		Usage     usage    `xml:"usage"`
	}{Ephemeral: "yes", Private: "yes", Usage: usage{Type: usageType}}
	if usageType == "ceph" {
		doc.Usage.Name = name
	} else {
		doc.Usage.Target = name
	}
	text, err := xml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("describe a secret: %w", err)
	}
	made, err := h.Virt.SecretDefineXML(string(text), 0)
	if err != nil {
		return fmt.Errorf("define a secret in libvirt: %w", err)
	}
	if err := h.Virt.SecretSetValue(libvirt.Secret(made), value, 0); err != nil {
		return fmt.Errorf("set the value of a secret in libvirt: %w", err)
	}
	return nil
}
