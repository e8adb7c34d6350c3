//go:build e2e

package netdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/netserver"
)

// readOnlyExport serves a disk by NBD that can only be read, and returns the port.
func readOnlyExport(y *fixture.Machines, export string) int {
	y.T.Helper()
	port, err := netserver.FreePort(y.HostAddress())
	if err != nil {
		y.T.Fatal(err)
	}
	serve := exec.Command("qemu-nbd", "--read-only", "--persistent", "--export-name="+export, "--bind="+y.HostAddress(), "--port="+strconv.Itoa(port), "--format=raw",
		fixture.GuestDir+"/"+testguest.Raw)
	if err := serve.Start(); err != nil {
		y.T.Fatal(err)
	}
	y.T.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	return port
}

// TestNetworkDiskReasons: what is wrong with a disk's server is a reason on the machine; a mended Secret is enough to start it.
func TestNetworkDiskReasons(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	l := y.GuestLUN("carol", "another password")
	web := y.WebDiskServer()
	nobody, err := netserver.FreePort(y.HostAddress())
	if err != nil {
		t.Fatal(err)
	}
	iscsi := func(change func(*kubevirt.ISCSISource)) kubevirt.Volume {
		s := y.ISCSISource(l)
		change(s)
		return kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: s}}}
	}
	url := func(u string) kubevirt.Volume {
		return kubevirt.Volume{AccessMode: kubevirt.ReadShared, VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{URL: u}}}}
	}
	readOnly := kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{Export: "disk",
		Host: kubevirt.NetworkHost{Name: y.HostAddress(), Port: new(intstr.FromInt(readOnlyExport(y, "disk")))}}}}}
	var denied *kubevirt.VirtualMachine
	for _, c := range []struct {
		name, reason, message string
		volume                kubevirt.Volume
	}{
		{"nolun", "DiskAbsent", "LOGICAL_UNIT_NOT_SUPPORTED", iscsi(func(s *kubevirt.ISCSISource) { s.LUN = 9 })},
		{"away", "DiskUnreachable", "connection refused", iscsi(func(s *kubevirt.ISCSISource) { s.Host.Port = new(intstr.FromInt(nobody)) })},
		{"loopback", "DiskRefused", "loopback", iscsi(func(s *kubevirt.ISCSISource) { s.Host.Name = "127.0.0.1" })},
		{"redirected", "DiskRefused", "loopback", url(web.URL + "/inside")},
		{"readonly", "DiskReadOnly", `add to the volume "accessMode: read-shared"`, readOnly},
		{"nofile", "DiskAbsent", "404", url(web.URL + "/nothing")},
		{"denied", "DiskDenied", "Authentication failure", iscsi(func(s *kubevirt.ISCSISource) {
			s.SecretRef.Name = y.ApplySecret("wrong", map[string]string{"node.session.auth.username": l.User, "node.session.auth.password": "a wrong password"})
		})},
		{"mutual", "DiskUnsupported", "mutual CHAP", iscsi(func(s *kubevirt.ISCSISource) {
			s.SecretRef.Name = y.ApplySecret("mutual", map[string]string{"node.session.auth.username": l.User, "node.session.auth.password": l.Password,
				"node.session.auth.username_in": "target", "node.session.auth.password_in": "its own password"})
		})},
	} {
		vm := y.NetworkMachine(c.name, c.volume)
		y.CreateMachine(vm)
		y.WaitReason(vm, c.reason, c.message)
		if c.name == "denied" {
			denied = vm
		} else if err := y.Kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.ApplySecret("wrong", map[string]string{"node.session.auth.username": l.User, "node.session.auth.password": l.Password})
	y.WaitStatus(denied, kubevirt.StatusRunning, fixture.BootPatience)
}

// TestNetworkDiskOutage: servers go away under a guest that writes, one whose client fails (NBD) and one whose client waits
// (iSCSI). The machine says what it waits for, continues when they are back, and the servers have every byte.
func TestNetworkDiskOutage(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	scsi, err := netserver.StartTGT(y.HostAddress(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	block, err := netserver.StartNBD(y.HostAddress(), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scsi.Close(); block.Close() })
	lun, err := scsi.Add(fixture.GuestDir+"/"+testguest.Raw, "", "")
	if err != nil {
		t.Fatal(err)
	}
	export, file, err := block.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	vm := y.TinyMachine("outage")
	fixture.BootKernel(vm, "disks")
	spec := &vm.Spec.Template.Spec
	spec.Volumes = []kubevirt.Volume{
		{Name: "waits", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Portal: lun.Target, LUN: int32(lun.Number),
			Host: kubevirt.NetworkHost{Name: scsi.Address, Port: new(intstr.FromInt(scsi.Port))}}}}},
		{Name: "fails", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{Export: export,
			Host: kubevirt.NetworkHost{Name: block.Address, Port: new(intstr.FromInt(block.Port))}}}}},
	}
	spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "waits", Serial: "waits"}, {Name: "fails", Serial: "fails"}}
	y.BootFromNetwork(vm)
	for _, c := range []struct {
		disk, says string
		port       int
		stop       func()
		start      func() error
		file       string
	}{
		{"fails", "the guest is paused since", block.Port, block.Stop, block.Start, file},
		{"waits", "iscsi server", scsi.Port, scsi.Stop, scsi.Start, lun.File},
	} {
		c.stop()
		const length = 8 << 20
		area := fmt.Sprintf("serial=%s %d %d 11", c.disk, testguest.DataOffset, length)
		y.TypeLine(vm, "write "+area)
		y.WaitReason(vm, "GuestPaused", c.says)
		if !strings.Contains(fixture.ReadyMessage(vm), net.JoinHostPort(y.HostAddress(), strconv.Itoa(c.port))) {
			t.Errorf("the server is not named: %s", fixture.ReadyMessage(vm))
		}
		y.WaitStatus(vm, kubevirt.StatusPaused, fixture.Patience)
		y.Stays("the machine waits", time.Minute, func(ctx context.Context) (bool, string) {
			err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
			return err == nil && vm.Status.PrintableStatus == kubevirt.StatusPaused, fmt.Sprintf("%s: %s, %v", vm.Status.PrintableStatus, fixture.ReadyMessage(vm), err)
		})
		if err := c.start(); err != nil {
			t.Fatal(err)
		}
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.Patience)
		y.GuestSays(vm, "berth-guest: write "+area+": ")
		got, want := make([]byte, length), make([]byte, length)
		_, _ = pattern.Stream(11).ReadAt(want, 0)
		f, err := os.Open(c.file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.ReadAt(got, testguest.DataOffset)
		_ = f.Close()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("the server of %s has other bytes than the guest wrote (%v)", c.disk, err)
		}
	}
}

// TestNetworkDiskSpelledAtTheDisk applies the proposal's own YAML, names and addresses replaced, twice: the machine stays as
// it was written, and its instance has the volumes.
func TestNetworkDiskSpelledAtTheDisk(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	l := y.GuestLUN("", "")
	y.CreateBlankVolume("some-pvc-name", "localdisk")
	text := fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: seed}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 1
      domain:
        memory: {guest: 32Mi}
        devices:
          disks:
            - source:
                iscsi:
                  host:
                    name: %s
                    port: "%d"
                  portal: %s
                  lun: %d
            - name: other
              source:
                pvc:
                  claimname: some-pvc-name
              access-mode: read-only
`, y.ISCSIServer().Address, y.ISCSIServer().Port, l.Target, l.Number)
	first := y.Apply(text)
	vm := &kubevirt.VirtualMachine{}
	vm.Namespace, vm.Name = y.Namespace, "seed"
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if again := y.Apply(text); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("applied again: generations were %v and are %v", first, again)
	}
	disks := vm.Spec.Template.Spec.Domain.Devices.Disks
	if len(vm.Spec.Template.Spec.Volumes) != 0 || len(disks) != 2 || disks[0].Source == nil || disks[0].Source.ISCSI.Host.Port.StrVal != strconv.Itoa(y.ISCSIServer().Port) ||
		disks[1].AccessMode != kubevirt.ReadOnly {
		t.Errorf("the machine is not as it was written: %+v", vm.Spec.Template.Spec)
	}
	i := y.InstanceOf(t.Context(), vm)
	if i == nil || len(i.Spec.Volumes) != 2 || i.Spec.Domain.Devices.Disks[0].Source != nil ||
		i.Spec.Volumes[0].ISCSI == nil || i.Spec.Volumes[0].ISCSI.Host.Port.IntVal != int32(y.ISCSIServer().Port) ||
		i.Spec.Volumes[1].AccessMode != kubevirt.ReadShared || i.Spec.Volumes[1].PersistentVolumeClaim.ClaimName != "some-pvc-name" {
		t.Errorf("the instance has another form: %+v", i)
	}
}

// TestNetworkDiskFull: a guest writes to a disk whose server has no room left. The client of NBD is told so and the guest is
// paused; the client of Ceph waits, and the machine says that writes do not come back. Both continue when there is room, and the
// servers have every byte.
func TestNetworkDiskFull(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=256m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, 0) })
	block, err := netserver.StartNBD(y.HostAddress(), small, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(block.Close)
	export, file, err := block.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	c, err := netserver.StartCeph(y.HostAddress(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	image, err := c.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.ApplySecret("ceph", map[string]string{"key": c.Key})
	vm := y.TinyMachine("full")
	fixture.BootKernel(vm, "disks")
	spec := &vm.Spec.Template.Spec
	spec.Volumes = []kubevirt.Volume{
		{Name: "fails", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{Export: export,
			Host: kubevirt.NetworkHost{Name: block.Address, Port: new(intstr.FromInt(block.Port))}}}}},
		{Name: "waits", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{RBD: &kubevirt.RBDSource{Monitors: []string{c.Monitor}, Pool: c.Pool, Image: image,
			User: c.User, SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}}}},
	}
	spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "fails", Serial: "fails"}, {Name: "waits", Serial: "waits"}}
	y.BootFromNetwork(vm)
	filler := small + "/filler"
	for _, s := range []struct {
		disk, reason, says string
		fill, empty        func() error
	}{
		{"fails", "DiskFull", "the guest is paused since", func() error { return fill(filler) }, func() error { return os.Remove(filler) }},
		{"waits", "DiskStalled", "ceph health detail", func() error { return c.Full(true) }, func() error { return c.Full(false) }},
	} {
		if err := s.fill(); err != nil {
			t.Fatal(err)
		}
		area := fmt.Sprintf("serial=%s %d %d 13", s.disk, testguest.DataOffset, 8<<20)
		y.TypeLine(vm, "write "+area)
		y.WaitReason(vm, s.reason, s.says)
		if err := s.empty(); err != nil {
			t.Fatal(err)
		}
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.Patience)
		for _, verb := range []string{"write ", "verify "} {
			if verb == "verify " {
				y.TypeLine(vm, verb+area)
			}
			y.GuestSays(vm, "berth-guest: "+verb+area+": ")
		}
	}
	exported := filepath.Join(t.TempDir(), "exported")
	if err := c.Export(image, exported); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, exported} {
		got, want := make([]byte, 8<<20), make([]byte, 8<<20)
		_, _ = pattern.Stream(13).ReadAt(want, 0)
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.ReadAt(got, testguest.DataOffset)
		_ = f.Close()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has other bytes than the guest wrote (%v)", name, err)
		}
	}
}

// fill writes to a file until there is no room.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for zeros := make([]byte, 1<<20); ; {
		if _, err := f.Write(zeros); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
