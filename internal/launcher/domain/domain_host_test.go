//go:build host

package domain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	libvirt "github.com/digitalocean/go-libvirt"

	"github.com/berth-vm/berth/internal/launcher/libvirtd"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/hosttool"
)

// TestLibvirtTakesTheDomains: libvirt accepts golden documents, and QEMU starts with every device of windows.xml. libvirt runs as
// it does in the launcher, not as root.
func TestLibvirtTakesTheDomains(t *testing.T) {
	if os.Getuid() == 0 {
		dir, err := os.MkdirTemp("", "d")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		hosttool.Run(t, "cp", "-r", os.Args[0], "testdata", dir)
		hosttool.Run(t, "chown", "-R", "nobody:nogroup", dir)
		again := exec.CommandContext(t.Context(), filepath.Join(dir, filepath.Base(os.Args[0])), "-test.run=^TestLibvirtTakesTheDomains$", "-test.v")
		again.Dir, again.Env = dir, append(os.Environ(), "TMPDIR="+dir)
		again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir, err := os.MkdirTemp("", "d") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	h, err := libvirtd.Start(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, file := range []string{"testdata/windows.xml", "testdata/windows-kvm.xml", "testdata/two-disks.xml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), `<domain type="kvm">`) {
			text = []byte(strings.NewReplacer(`type="kvm"`, `type="qemu"`, `mode="host-model"`, `mode="maximum"`).Replace(string(text)))
		}
		defined, err := h.Virt.DomainDefineXMLFlags(string(text), libvirt.DomainDefineValidate)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		_ = h.Virt.DomainUndefineFlags(defined, libvirt.DomainUndefineNvram)
	}
	text, err := os.ReadFile("testdata/windows.xml")
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("/run/berth/volumes/root/disk.img", disk, launcherapi.StateDir, dir, launcherapi.OwnDir, dir).Replace(string(text))
	started, err := h.Virt.DomainCreateXML(here, libvirt.DomainStartPaused)
	if err != nil {
		t.Fatalf("start windows.xml: %v", err)
	}
	if err := h.Virt.DomainDestroy(started); err != nil {
		t.Error(err)
	}
}
