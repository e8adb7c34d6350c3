package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
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
			d, err := Domain(readYAML(t, file), planned(readYAML(t, file)), goldenHost)
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
	d, err := Domain(m, planned(m), Host{KVM: true, OVMF: ovmf[0]})
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/windows-kvm.xml", got+"\n")
}

// TestPublicKeys: keys of Secrets that are for cloud-init are in its data, and no others.
func TestPublicKeys(t *testing.T) {
	mounts := t.TempDir()
	for file, text := range map[string]string{
		"berth-access-0/key1": "ssh-ed25519 AAAA a@b\n\n# a comment\nssh-rsa BBBB \"c\"\n", "berth-access-0/..data": "not a key", "berth-access-1/key": "ssh-rsa DDDD\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(mounts, file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mounts, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var m launcherapi.Machine
	m.Name, m.Namespace = "vm", "team"
	if err := yaml.UnmarshalStrict([]byte(`
- sshPublicKey: {source: {secret: {secretName: a}}, propagationMethod: {noCloud: {}}}
- sshPublicKey: {source: {secret: {secretName: b}}, propagationMethod: {configDrive: {}}}
- sshPublicKey: {source: {secret: {secretName: c}}, propagationMethod: {qemuGuestAgent: {users: [d]}}}
`), &m.Spec.AccessCredentials); err != nil {
		t.Fatal(err)
	}
	keys, err := publicKeys(mounts, m.Spec.AccessCredentials, true)
	if err != nil {
		t.Fatal(err)
	}
	meta := noCloud(m, &kubevirt.CloudInitSource{}, keys).files["meta-data"].inline
	var data struct {
		Keys []string `json:"public-keys"`
	}
	if err := yaml.Unmarshal([]byte(meta), &data); err != nil || len(data.Keys) != 2 || data.Keys[1] != `ssh-rsa BBBB "c"` {
		t.Errorf("cloud-init reads %q: %v\n%s", data.Keys, err, meta)
	}
	keys, err = publicKeys(mounts, m.Spec.AccessCredentials, false)
	if err != nil {
		t.Fatal(err)
	}
	if meta := configDrive(m, &kubevirt.CloudInitSource{}, keys).files["openstack/latest/meta_data.json"].inline; !strings.Contains(meta, `"public_keys":{"0":"ssh-rsa DDDD"}`) {
		t.Errorf("the config drive has %s", meta)
	}
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

// planned is what prepare would make of the volumes, without making it.
func planned(m launcherapi.Machine) map[string]Backing {
	out := map[string]Backing{}
	for _, v := range m.Spec.Volumes {
		switch {
		case contains(m.Block, v.Name):
			out[v.Name] = Backing{Path: diskDevice(v.Name), Device: true, Format: "raw"}
		case v.ContainerDisk != nil:
			out[v.Name] = Backing{Path: launcherapi.MountDir + "/" + v.Name + "/disk.qcow2", Format: "qcow2"}
		case v.ContainerImage != nil:
			dir := launcherapi.MountDir + "/" + v.Name + "/disk/"
			out[v.Name] = Backing{Path: dir + "top.qcow2", Format: "qcow2", Orders: ordersFile, Master: &Backing{Path: dir + "001.qcow2", Format: "qcow2",
				Master: &Backing{Path: dir + "000.qcow2", Format: "qcow2"}}}
		case v.CloudInitNoCloud != nil:
			out[v.Name] = Backing{Path: launcherapi.StateDir + "/" + v.Name + ".img", Format: "raw", ReadOnly: true}
		case v.Networked():
			out[v.Name] = plannedRemote(m, v)
		default:
			out[v.Name] = Backing{Path: diskFile(v.Name), Format: "raw"}
		}
		if c := v.Copied(); c != nil {
			master := out[v.Name]
			b := Backing{Path: copyPath(v.Name), Format: "qcow2", Copied: true, Orders: master.Orders, Keeps: c.Mode == kubevirt.CopyOnRead}
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

// plannedRemote is what remotes.backing would make of a network disk, without asking its server.
func plannedRemote(m launcherapi.Machine, v kubevirt.Volume) Backing {
	user := ""
	if v.ISCSI != nil && v.ISCSI.SecretRef != nil || v.RBD != nil && v.RBD.SecretRef != nil {
		user = "alice" // as the Secret says
	}
	at, err := remote(m, v, user)
	if v.HTTP != nil {
		at, err = onSocket(launcherapi.StateDir+"/"+v.Name+".nbd"), nil
	}
	if err != nil {
		panic(err)
	}
	return Backing{Remote: at, Format: string(v.DiskFormat()), ReadOnly: v.Reads()}
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
	if _, err := Domain(small, nil, goldenHost); err == nil || !strings.Contains(err.Error(), "domain.memory.guest") {
		t.Errorf("a machine without memory: %v", err)
	}
	m := readYAML(t, "testdata/two-disks.yaml")
	m.Emulate = false
	if _, err := Domain(m, planned(m), goldenHost); err == nil || !strings.Contains(err.Error(), "KVM") {
		t.Errorf("no KVM and no emulation: %v", err)
	}
	m.Emulate = true
	if _, err := Domain(m, nil, goldenHost); err == nil || !strings.Contains(err.Error(), `"root"`) {
		t.Errorf("a disk without a volume: %v", err)
	}
}

func TestLetters(t *testing.T) {
	for n, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab", 701: "zz", 702: "aaa"} {
		if got := letter(n); got != want {
			t.Errorf("letter(%d) = %s, want %s", n, got, want)
		}
	}
}
