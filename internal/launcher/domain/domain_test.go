package domain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// goldenHost is a node like the tests': no KVM, OVMF from Debian.
var goldenHost = Host{OVMF: ovmf[0]}

// TestDomain turns each testdata/*.yaml into its .xml.
func TestDomain(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no machines in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			d, err := New(readYAML(t, file), planned(readYAML(t, file)), goldenHost)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, strings.TrimSuffix(file, ".yaml")+".xml", got+"\n")
		})
	}
}

// TestDomainWithKVM: what an emulated guest goes without.
func TestDomainWithKVM(t *testing.T) {
	m := readYAML(t, "testdata/windows.yaml")
	d, err := New(m, planned(m), Host{KVM: true, OVMF: ovmf[0]})
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/windows-kvm.xml", got+"\n")
}

func readYAML(t *testing.T, file string) launcherapi.Machine {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := launcherapi.Machine{Namespace: "default", Emulate: true}
	if err := yaml.UnmarshalStrict(b, &m); err != nil {
		t.Fatal(err)
	}
	m.Resolve()
	return m
}

// planned returns what prepare would make of the volumes, without making it.
func planned(m launcherapi.Machine) map[string]backing.Disk {
	out := map[string]backing.Disk{}
	for _, v := range m.Spec.Volumes {
		switch {
		case contains(m.Block, v.Name):
			out[v.Name] = backing.Disk{Path: backing.ClaimDevice(v.Name), Device: true, Format: "raw"}
		case v.ContainerDisk != nil:
			out[v.Name] = backing.Disk{Path: launcherapi.MountDir + "/" + v.Name + "/disk.qcow2", Format: "qcow2"}
		case v.ContainerImage != nil:
			dir := launcherapi.MountDir + "/" + v.Name + "/disk/"
			out[v.Name] = backing.Disk{Path: dir + "top.qcow2", Format: "qcow2", Orders: OrdersFile, Master: &backing.Disk{Path: dir + "001.qcow2", Format: "qcow2",
				Master: &backing.Disk{Path: dir + "000.qcow2", Format: "qcow2"}}}
		case v.CloudInitNoCloud != nil:
			out[v.Name] = backing.Disk{Path: launcherapi.StateDir + "/" + v.Name + ".img", Format: "raw", ReadOnly: true}
		case v.Networked():
			out[v.Name] = plannedRemote(m, v)
		default:
			out[v.Name] = backing.Disk{Path: backing.ClaimFile(v.Name), Format: "raw"}
		}
		if c := v.Copied(); c != nil {
			master := out[v.Name]
			b := backing.Disk{Path: backing.CopyFile(v.Name), Format: "qcow2", Copied: true, Orders: master.Orders, CopyOnRead: c.Mode == kubevirt.CopyOnRead}
			if c.Mode != kubevirt.CopyClone {
				b.Master = &master
			}
			if c.UsageType == "" {
				b.Limit = launcherapi.CopyFile(1 << 30)
			}
			out[v.Name] = b
		}
	}
	return out
}

// plannedRemote returns what remotes.backing would make of a network disk, without asking its server.
func plannedRemote(m launcherapi.Machine, v kubevirt.Volume) backing.Disk {
	user := ""
	if v.ISCSI != nil && v.ISCSI.SecretRef != nil || v.RBD != nil && v.RBD.SecretRef != nil {
		user = "alice" // as the Secret says
	}
	at, err := backing.NewRemote(m, v, user)
	if v.HTTP != nil {
		at, err = backing.OnSocket(launcherapi.StateDir+"/"+v.Name+".nbd"), nil
	}
	if err != nil {
		panic(err)
	}
	return backing.Disk{Remote: at, Format: string(v.DiskFormat()), ReadOnly: v.Reads()}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func TestDomainRefuses(t *testing.T) {
	small := launcherapi.Machine{Namespace: "default", Name: "vm", Emulate: true}
	if _, err := New(small, nil, goldenHost); err == nil || !strings.Contains(err.Error(), "domain.memory.guest") {
		t.Errorf("a machine without memory: %v", err)
	}
	m := readYAML(t, "testdata/two-disks.yaml")
	m.Emulate = false
	if _, err := New(m, planned(m), goldenHost); err == nil || !strings.Contains(err.Error(), "KVM") {
		t.Errorf("no KVM and no emulation: %v", err)
	}
	m.Emulate = true
	if _, err := New(m, nil, goldenHost); err == nil || !strings.Contains(err.Error(), `"root"`) {
		t.Errorf("a disk without a volume: %v", err)
	}
}

func TestLetters(t *testing.T) {
	for n, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab", 701: "zz", 702: "aaa"} {
		if got := Letter(n); got != want {
			t.Errorf("letter(%d) = %s, want %s", n, got, want)
		}
	}
}

// TestImageRefusals: what a machine from an image cannot be is said in one line.
func TestImageRefusals(t *testing.T) {
	image := kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "i"}}
	memory := resource.MustParse("256Mi")
	for want, change := range map[string]func(*kubevirt.VirtualMachineInstanceSpec){
		"a machine runs the program of one": func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "other", VolumeSource: image})
		},
		"remove firmware.kernelBoot": func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{}}
		},
		"must be on virtio or scsi": func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.BusSATA}}}}
		},
		"needs 134217728": func(s *kubevirt.VirtualMachineInstanceSpec) {
			little := resource.MustParse("64Mi")
			s.Domain.Memory = &kubevirt.Memory{Guest: &little}
		},
	} {
		m := launcherapi.Machine{Name: "m", Emulate: true}
		m.Spec.Domain.Memory = &kubevirt.Memory{Guest: &memory}
		m.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: image}}
		change(&m.Spec)
		if _, err := New(m, planned(m), goldenHost); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
