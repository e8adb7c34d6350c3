package access

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestAgentAccess: the agent is asked once for what is in the mounted Secrets, again for what has changed or could not be set, and for everything
// when it was away.
func TestAgentAccess(t *testing.T) {
	dir := t.TempDir()
	put := func(n int, key, value string) {
		t.Helper()
		at := filepath.Join(dir, launcherapi.AccessMount(n))
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret := kubevirt.CredentialSource{Secret: &kubevirt.CredentialSecret{SecretName: "s"}}
	users := func(names ...string) kubevirt.SSHKeyPropagation {
		return kubevirt.SSHKeyPropagation{QemuGuestAgent: &kubevirt.AgentSSHKeyPropagation{Users: names}}
	}
	var asked []string
	lacks := ""
	a := &Agent{Mounts: dir, Log: slog.New(slog.DiscardHandler), Credentials: []kubevirt.AccessCredential{
		{SSHPublicKey: &kubevirt.SSHPublicKeyAccess{Source: secret, PropagationMethod: users("ada", "bob")}},
		{SSHPublicKey: &kubevirt.SSHPublicKeyAccess{Source: secret, PropagationMethod: users("bob", "carl")}},
		{UserPassword: &kubevirt.UserPasswordAccess{Source: secret, PropagationMethod: kubevirt.PasswordPropagation{QemuGuestAgent: &kubevirt.CloudInitPropagation{}}}},
		{SSHPublicKey: &kubevirt.SSHPublicKeyAccess{Source: secret, PropagationMethod: kubevirt.SSHKeyPropagation{NoCloud: &kubevirt.CloudInitPropagation{}}}},
	}}
	a.Ask = func(command string, arguments any) error {
		text, err := json.Marshal(arguments)
		asked = append(asked, command+" "+string(text))
		if arguments.(map[string]any)["username"] == lacks {
			return errors.New("no such user")
		}
		return err
	}
	const (
		ada      = `guest-ssh-add-authorized-keys {"keys":["one","two"],"reset":true,"username":"ada"}`
		bob      = `guest-ssh-add-authorized-keys {"keys":["one","two","three"],"reset":true,"username":"bob"}`
		carl     = `guest-ssh-add-authorized-keys {"keys":["three"],"reset":true,"username":"carl"}`
		password = `guest-set-user-password {"crypted":false,"password":"c2VjcmV0","username":"ada"}`
	)
	step := func(what string, answers bool, says string, want ...string) {
		t.Helper()
		asked = nil
		why := a.Set(answers)
		switch {
		case !slices.Equal(asked, want):
			t.Errorf("%s: asked %q, want %q", what, asked, want)
		case answers != (why != nil) || why != nil && *why != says:
			t.Errorf("%s: it says %v, want %q", what, why, says)
		}
	}
	step("no Secret", true, "")
	put(0, "b", "two\n\n# a comment\n")
	put(0, "a", "one")
	put(1, "key", "three\n")
	put(2, "ada", "secret")
	put(3, "key", "for cloud-init")
	lacks = "carl"
	step("Secrets, and a user that does not exist", true, "user carl: no such user", ada, bob, carl, password)
	step("nothing new", true, "user carl: no such user", carl)
	lacks = ""
	step("the user was added", true, "", carl)
	step("all is set", true, "")
	step("no agent", false, "")
	step("the agent is back", true, "", ada, bob, carl, password)
	if err := os.Remove(filepath.Join(dir, launcherapi.AccessMount(1), "key")); err != nil {
		t.Fatal(err)
	}
	step("a key was removed", true, "", `guest-ssh-add-authorized-keys {"keys":["one","two"],"reset":true,"username":"bob"}`,
		`guest-ssh-add-authorized-keys {"keys":[],"reset":true,"username":"carl"}`)
	step("the last key of a user was removed", true, "")

	if why := (&Agent{Credentials: a.Credentials[3:]}).Set(true); why != nil {
		t.Errorf("without anything for the agent it says %q", *why)
	}
}
