//go:build host

package main

import (
	"archive/tar"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/bootdisk"
	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/version"
)

// testBuild uses the checkout's downloads and nothing else that was made before.
func testBuild(t *testing.T) *build {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	return &build{
		root: root, out: t.TempDir(), cache: cache, log: t.Output(), arch: ownArch,
		debs:   debian.Cache{Dir: filepath.Join(root, ".cache", "images", "debs")},
		layers: oci.Cache{Dir: filepath.Join(cache, "layers")},
	}
}

func digestOf(t *testing.T, l v1.Layer) string {
	t.Helper()
	d, err := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// The base is made once for both: unpacking its packages takes some ten seconds.
func TestLauncher(t *testing.T) {
	b := testBuild(t)
	base, err := b.launcherBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("is the same built twice", func(t *testing.T) {
		again, err := testBuild(t).launcherBase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if first, second := digestOf(t, base), digestOf(t, again); first != second {
			t.Errorf("the launcher's base is %s and, built again, %s", first, second)
		}
	})
	t.Run("runs a machine without privilege", func(t *testing.T) { runMachine(t, b, base) })
}

// What cannot be run here is looked at: the launcher's image for arm64 has the same programs as this machine's, for that processor.
func TestLauncherForArm64(t *testing.T) {
	b := testBuild(t)
	b.arch, b.debs.Arch = "arm64", "arm64"
	b.is = version.Info{Version: "v1.2.3", Commit: "0123456789abcdef", Date: "2026-11-16T04:00:00Z"}
	image, err := b.forRelease(t.Context(), (*build).launcher)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/launcher"}) || config.Config.User != user ||
		config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" || config.Config.Labels["org.opencontainers.image.revision"] != "0123456789abcdef" {
		t.Errorf("the image is %+v", config)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	machines := map[string]string{}
	for _, l := range layers {
		elves(t, l, machines)
	}
	for _, name := range []string{
		"usr/bin/launcher", "usr/bin/qemu-system-x86_64", "usr/sbin/libvirtd", "usr/bin/qemu-img", "usr/lib/aarch64-linux-gnu/libc.so.6",
	} {
		if machines[name] != elf.EM_AARCH64.String() {
			t.Errorf("%s is for %q", name, machines[name])
		}
	}
	for name, machine := range machines {
		if machine != elf.EM_AARCH64.String() && (strings.HasPrefix(name, "usr/bin/") || strings.HasPrefix(name, "usr/sbin/")) {
			t.Errorf("%s is for %s", name, machine)
		}
	}
}

// elves notes which processor every ELF file of a layer is for.
func elves(t *testing.T, l v1.Layer, machines map[string]string) {
	t.Helper()
	content, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	entries := tar.NewReader(content)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 20) // the machine is at 18
		if _, err := io.ReadFull(entries, head); err == nil && string(head[:4]) == elf.ELFMAG {
			machines[h.Name] = elf.Machine(binary.LittleEndian.Uint16(head[18:])).String()
		}
	}
}

func TestBerthBaseIsTheSameBuiltTwice(t *testing.T) {
	var digests []string
	for range 2 {
		base, err := testBuild(t).berthBase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digestOf(t, base))
	}
	if digests[0] != digests[1] {
		t.Errorf("the base of the berth image is %s and, built again, %s", digests[0], digests[1])
	}
}

// Every program that the storage driver calls finds what it reads and what it is linked with in the image's own files.
func TestCSIProgramsRunInTheImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("unpacking an image and entering it needs root")
	}
	base, err := testBuild(t).packagesOf(t.Context(), "csi")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	unpack(t, base, root)
	disk := filepath.Join(root, "disk")
	err = errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 400<<20),
		os.WriteFile(filepath.Join(root, "etc", "mtab"), nil, 0o600)) // a container has /proc for those who ask what is mounted
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"mkfs.ext4 -q -F /disk", "e2fsck -f -p /disk", "resize2fs /disk", "mkfs.xfs -q -f /disk", "xfs_growfs -V",
	} {
		enter := exec.CommandContext(t.Context(), "chroot", append([]string{root}, strings.Fields(line)...)...)
		enter.Env = []string{"PATH=/usr/bin:/usr/sbin"} // chroot itself is found by ours
		if out, err := enter.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
}

// The guest that make images built must come out again, byte for byte, from another folder at another time.
func TestGuestIsTheSameBuiltAgain(t *testing.T) {
	b := testBuild(t)
	before, err := guest.ReadManifest(filepath.Join(b.root, "bin", "images", "guest"))
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.guestInputs(t.Context(), cloudGuest)
	if err != nil {
		t.Fatal(err)
	}
	after, err := bootdisk.Build(t.Context(), in, filepath.Join(b.out, "guest"))
	if err != nil {
		t.Fatal(err)
	}
	if after.Inputs != before.Inputs {
		t.Fatal("the guest in bin/images was made from other inputs: run make images")
	}
	for name, file := range after.Files {
		if file != before.Files[name] {
			t.Errorf("%s is %+v, was %+v", name, file, before.Files[name])
		}
	}
}

// machineXML is a machine as small as libvirt lets it be.
const machineXML = `<domain type='qemu'>
  <name>test</name><memory unit='MiB'>256</memory><vcpu>1</vcpu>
  <os><type machine='q35'>hvm</type></os><features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file'><driver name='qemu' type='raw'/><source file='/disk.img'/><target dev='vda' bus='virtio'/></disk>
    <serial type='file'><source path='/run/berth/console.log'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>`

// inside runs as the image's user, without any capability, in the image's files.
const inside = `set -e
mkdir -p $HOME/config/libvirt $XDG_RUNTIME_DIR
printf 'security_driver = "none"\nnamespaces = []\ncgroup_controllers = []\nstdio_handler = "file"\n' > $HOME/config/libvirt/qemu.conf
export XDG_CONFIG_HOME=$HOME/config XDG_CACHE_HOME=$HOME/cache
libvirtd --daemon
virsh create /machine.xml
until grep -q 'berth-guest: ready' /run/berth/console.log; do sleep 0.2; virsh domstate test | grep -q running; done
virsh destroy test
for program in genisoimage qemu-img qemu-io; do command -v $program; done
# Every way to reach a disk over a network must load.
for driver in http:// iscsi:// rbd: gluster:// nfs:// ssh://; do
  qemu-img info $driver 2>&1 | grep -v 'Unknown protocol'
done
`

func runMachine(t *testing.T, b *build, base v1.Layer) {
	if os.Geteuid() != 0 {
		t.Fatal("unpacking an image and entering it needs root")
	}
	settings, err := b.launcherSettings()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, l := range []v1.Layer{base, settings} {
		unpack(t, l, root)
	}
	disk := filepath.Join(root, "disk.img")
	out, err := exec.Command("cp", "--sparse=always", filepath.Join(b.root, "bin", "images", "guest", guest.Raw), disk).CombinedOutput()
	if err != nil {
		t.Fatalf("copy the guest's disk (make images builds it): %v: %s", err, out)
	}
	if err := os.Chown(disk, images.UID, images.UID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "machine.xml"), []byte(machineXML), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	enter := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", `set -e
mount --rbind /dev $1/dev; mount --rbind /sys $1/sys; mount -t proc proc $1/proc
exec setpriv --no-new-privs chroot --userspec=$2 $1 /bin/sh -c "$3"`, "sh", root, user, inside)
	enter.Env = launcherEnv
	enter.Env[0] += ":/sbin:/bin"
	if out, err := enter.CombinedOutput(); err != nil {
		log, _ := os.ReadFile(filepath.Join(root, "run/berth/console.log"))
		t.Errorf("%v\n%s\nconsole:\n%s", err, out, log)
	} else {
		t.Log(strings.TrimSpace(string(out)))
	}
}

func unpack(t *testing.T, l v1.Layer, root string) {
	t.Helper()
	content, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	cmd := exec.Command("tar", "--extract", "--directory", root, "--numeric-owner", "--same-owner", "--preserve-permissions")
	cmd.Stdin = content
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unpack layer: %v: %s", err, out)
	}
}
