//go:build host

package guest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
)

func content(t *testing.T, seed pattern.Stream, size int64) []byte {
	t.Helper()
	b := make([]byte, size)
	if _, err := seed.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %q, want %q", what, got, want)
	}
}

// drive attaches a file as a disk without a device.
func drive(id, file string) string { return "file=" + file + ",format=raw,if=none,id=" + id }

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestBootsFromBIOSAndObeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	second := content(t, 2, 8<<20)
	port := freePort(t)
	agent := filepath.Join(dir, "agent")
	m := boot(t,
		"-drive", drive("boot", bootDisk(t)), "-device", "virtio-blk-pci,drive=boot,bootindex=1,serial=boot",
		"-drive", drive("second", writeFile(t, filepath.Join(dir, "second"), second)), "-device", "virtio-blk-pci,drive=second,serial=second",
		"-drive", drive("third", writeFile(t, filepath.Join(dir, "third"), make([]byte, 1<<20))),
		"-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=third,serial=third",
		"-drive", drive("fourth", writeFile(t, filepath.Join(dir, "fourth"), make([]byte, 1<<20))), "-device", "nvme,drive=fourth,serial=fourth",
		"-device", "pcie-root-port,id=port1,chassis=1",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=agent,path="+agent+",server=on,wait=off",
		"-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-netdev", fmt.Sprintf("user,id=net,hostfwd=tcp:127.0.0.1:%d-:80", port), "-device", "virtio-net-pci,netdev=net,romfile=",
	)
	if rest := m.expect("kernel "); !strings.Contains(rest, "firmware bios") {
		t.Errorf("kernel line %q does not name BIOS firmware", rest)
	}
	want(t, "nvme disk", m.expect("disk nvme0n1 "), "bus=nvme serial=fourth size=1048576")
	want(t, "scsi disk", m.expect("disk sda "), "bus=scsi serial=third size=1048576")
	want(t, "boot disk", m.expect("disk vda "), fmt.Sprintf("bus=virtio serial=boot size=%d", guest.DiskSize))
	want(t, "second disk", m.expect("disk vdb "), "bus=virtio serial=second size=8388608")
	m.expect("ready")

	t.Log("disks")
	want(t, "sha256 of a disk", m.tell("sha256 vdb"), digest(second))
	want(t, "sha256 of a part", m.tell("sha256 serial=second 4096 12345"), digest(second[4096:4096+12345]))
	want(t, "bytes", m.tell("read vdb 16 8"), hex.EncodeToString(second[16:24]))
	want(t, "write", m.tell("write data 512 1000000 7"), digest(content(t, 7, 1000000)))
	want(t, "verify", m.tell(fmt.Sprintf("verify vda %d 1000000 7", guest.DataOffset+512)), "same")
	m.typeLine("verify vdb 0 10 7")
	want(t, "wrong data", m.expectError("verify vdb 0 10 7: "), "differs at 0")
	m.typeLine("sha256 vdb 8388608 1")
	want(t, "beyond the end", m.expectError("sha256 vdb 8388608 1: "), "1 bytes at 8388608 are not on this disk of 8388608 bytes")

	m.checkChurn()
	t.Log("network")
	checkPage(t, port)
	t.Log("hotplug")
	m.checkHotplug(dir)
	t.Log("agent")
	m.checkAgent(agent)
	t.Log("power button")
	m.qmp("system_powerdown", nil)
	m.expect("power button pressed")
	m.expect("powering off")
	m.ended()
}

// expectError reads to the guest's error line for a command.
func (m *machine) expectError(prefix string) string {
	m.t.Helper()
	for line := range m.lines {
		if rest, ok := strings.CutPrefix(line, "error: "+prefix); ok {
			return rest
		}
	}
	m.t.Fatalf("the machine ended before the guest refused %q", prefix)
	return ""
}

// checkChurn has a disk written to continuously, and checks that a block is reported that another process changed.
func (m *machine) checkChurn() {
	m.t.Helper()
	want(m.t, "churn", m.tell("churn serial=second"), "2048 blocks")
	for m.tell("compare serial=second") == "same 2048 written 0" {
	}
	if seconds, run, _ := strings.Cut(m.tell("uptime"), " "); !strings.Contains(seconds, ".") || len(run) != 36 {
		m.t.Errorf("uptime says %s %s", seconds, run)
	}
	if got := m.tell("calm serial=second"); !strings.HasPrefix(got, "same 2048 written ") {
		m.t.Errorf("calm says %s", got)
	}
	m.typeLine("compare serial=second")
	want(m.t, "a disk that is not written to", m.expectError("compare serial=second: "), "it is not written to: churn")
}

func checkPage(t *testing.T, port int) {
	t.Helper()
	// The guest may not have its address yet; until then QEMU accepts the connection and resets it.
	for range 100 {
		reply, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			continue
		}
		defer reply.Body.Close()
		page, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "page", string(page), "berth-guest\n")
		return
	}
	t.Error("the guest's port 80 did not answer")
}

func (m *machine) checkHotplug(dir string) {
	m.t.Helper()
	hot := content(m.t, 5, 1<<20)
	m.qmp("blockdev-add", map[string]any{
		"driver": "file", "node-name": "hot", "filename": writeFile(m.t, filepath.Join(dir, "hot"), hot),
	})
	m.qmp("device_add", map[string]any{"driver": "virtio-blk-pci", "drive": "hot", "id": "hot", "serial": "hot", "bus": "port1"})
	want(m.t, "hotplugged disk", m.expect("disk added vdc "), "bus=virtio serial=hot size=1048576")
	want(m.t, "sha256 of the hotplugged disk", m.tell("sha256 serial=hot"), digest(hot))
	m.qmp("device_del", map[string]any{"id": "hot"})
	want(m.t, "unplugged disk", m.expect("disk removed "), "vdc")
}

// checkAgent freezes the guest and sees that what it is told to write waits for the thaw.
func (m *machine) checkAgent(socket string) {
	m.t.Helper()
	agent := connect(m.t, socket)
	want(m.t, "guest-sync", string(agent.ask(m.t, "guest-sync", map[string]int{"id": 42})), "42")
	want(m.t, "guest-ping", string(agent.ask(m.t, "guest-ping", nil)), "{}")
	want(m.t, "status", string(agent.ask(m.t, "guest-fsfreeze-status", nil)), `"thawed"`)
	want(m.t, "freeze", string(agent.ask(m.t, "guest-fsfreeze-freeze", nil)), "1")
	m.expect("frozen")
	want(m.t, "status", string(agent.ask(m.t, "guest-fsfreeze-status", nil)), `"frozen"`)
	m.typeLine("write data 0 512 9")
	m.expect("write waits for thaw")
	want(m.t, "thaw", string(agent.ask(m.t, "guest-fsfreeze-thaw", nil)), "1")
	m.expect("thawed") // before the answer to write, or that would be skipped here and not be found below
	want(m.t, "write", m.expect("write data 0 512 9: "), digest(content(m.t, 9, 512)))
}

// The whole life of a disk in a UEFI machine: booted from, told what to do by a cloud-init volume, written to, ended; the data is there.
func TestBootsFromUEFIAndRunsUserData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := bootDisk(t)
	vars := filepath.Join(dir, "vars.fd")
	command(t, "cp", "/usr/share/OVMF/OVMF_VARS_4M.fd", vars)
	script := writeFile(t, filepath.Join(dir, "user-data"), []byte("#berth-guest\nwrite data 1048576 65536 3\ncat meta-data\npoweroff\n"))
	meta := writeFile(t, filepath.Join(dir, "meta-data"), []byte("instance-id: one\n"))
	cidata := writeFile(t, filepath.Join(dir, "cidata"), make([]byte, 1<<20))
	command(t, "/sbin/mkfs.vfat", "-n", "CIDATA", cidata)
	command(t, "mcopy", "-i", cidata, script, meta, "::")

	m := boot(t,
		"-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd", "-drive", "if=pflash,format=raw,file="+vars,
		"-drive", drive("boot", disk), "-device", "virtio-blk-pci,drive=boot,bootindex=1",
		"-drive", drive("cidata", cidata), "-device", "virtio-blk-pci,drive=cidata",
	)
	if rest := m.expect("kernel "); !strings.Contains(rest, "firmware uefi") {
		t.Errorf("kernel line %q does not name UEFI firmware", rest)
	}
	want(t, "volume", m.expect("cloud-init volume "), "/dev/vdb label=CIDATA type=vfat")
	want(t, "meta-data", m.expect("meta-data| "), "instance-id: one")
	want(t, "user-data", m.expect("user-data| "), "#berth-guest")
	m.expect("ready")
	want(t, "write", m.expect("write data 1048576 65536 3: "), digest(content(t, 3, 65536)))
	want(t, "cat", m.expect("meta-data| "), "instance-id: one")
	m.expect("powering off")
	m.ended()

	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 65536)
	if _, err := f.ReadAt(got, guest.DataOffset+1<<20); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content(t, 3, 65536)) {
		t.Error("the disk does not hold what the guest says it wrote")
	}
}

func TestBootsKernelDirectlyAndCrashes(t *testing.T) {
	t.Parallel()
	for _, device := range []string{"pvpanic", "pvpanic-pci"} { // on the ISA bus, as libvirt puts it, and on PCI
		t.Run(device, func(t *testing.T) {
			t.Parallel()
			m := boot(t,
				"-kernel", filepath.Join(built, guest.Kernel), "-initrd", filepath.Join(built, guest.Initramfs),
				"-append", `console=ttyS0 quiet panic=1 berth.run="disks; nonsense"`, "-device", device,
			)
			m.expect("ready")
			want(t, "disks", m.expect("disks: "), "0")
			want(t, "unknown command", m.expectError("nonsense: "), "unknown command")
			m.qmp("query-status", nil)
			m.typeLine("crash")
			m.control.event(t, "GUEST_PANICKED")
		})
	}
}
