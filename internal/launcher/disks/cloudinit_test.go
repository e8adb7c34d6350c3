package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/access"
	"github.com/berth-vm/berth/internal/launcherapi"
)

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
	keys, err := access.PublicKeys(mounts, m.Spec.AccessCredentials, true)
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
	keys, err = access.PublicKeys(mounts, m.Spec.AccessCredentials, false)
	if err != nil {
		t.Fatal(err)
	}
	if meta := configDrive(m, &kubevirt.CloudInitSource{}, keys).files["openstack/latest/meta_data.json"].inline; !strings.Contains(meta, `"public_keys":{"0":"ssh-rsa DDDD"}`) {
		t.Errorf("the config drive has %s", meta)
	}
}
