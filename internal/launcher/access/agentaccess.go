// Package access sets the keys and passwords of a machine's accessCredentials: it reads them from mounted Secrets, for cloud-init or for the
// guest agent.
package access

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// mostReported bounds what is reported about the keys and passwords.
const mostReported = 256

// Agent lets the guest agent set those keys and passwords of a machine's accessCredentials that name it, and set them again when their
// Secrets change. The agent replaces all keys of a user, as in KubeVirt.
type Agent struct {
	Mounts      string
	Credentials []kubevirt.AccessCredential
	Ask         func(command string, arguments any) error
	Log         *slog.Logger
	set         map[string][sha256.Size]byte // the checksum of what was set last, by command and user
	logged      string                       // the last error that was logged
}

// agentRequest is the keys or the password of one user.
type agentRequest struct {
	command, user string
	arguments     map[string]any
	empty         bool // the user has no key
}

func (r agentRequest) name() string { return r.command + " " + r.user }

// wanted reports whether the machine has credentials for the agent.
func (a *Agent) wanted() bool {
	return slices.ContainsFunc(a.Credentials, func(c kubevirt.AccessCredential) bool { return c.ByAgent() })
}

// Set sets the credentials that have changed, if the agent answers. It returns nil if there is nothing to set or no agent,
// otherwise the error as text; empty if all are set.
func (a *Agent) Set(answers bool) *string {
	if !a.wanted() {
		return nil
	}
	if !answers { // the guest may have rebooted from a disk that keeps nothing, so everything is set again when the agent answers
		a.set = nil
		return nil
	}
	why := ""
	if err := a.synchronize(); err != nil {
		why = err.Error()
		why = why[:min(len(why), mostReported)]
	}
	return &why
}

// synchronize sets what has changed. One request that fails does not stop the others.
func (a *Agent) synchronize() error {
	requests, err := a.requests()
	all := []error{err}
	for _, r := range requests {
		text, err := json.Marshal(r.arguments)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		had, was := a.set[r.name()]
		if was && had == sum || !was && r.empty { // a user who never had keys here keeps those that the image has
			continue
		}
		if err := a.Ask(r.command, r.arguments); err != nil {
			all = append(all, fmt.Errorf("user %s: %w", r.user, err))
			continue
		}
		if a.set == nil {
			a.set = map[string][sha256.Size]byte{}
		}
		a.set[r.name()] = sum
	}
	err = errors.Join(all...)
	if text := fmt.Sprint(err); err != nil && text != a.logged {
		a.Log.Warn("the guest agent does not set all of accessCredentials", "why", text)
		a.logged = text
	}
	return err
}

// requests returns what the mounted Secrets ask for, ordered by command and user. The error is about Secrets that cannot be read; the requests
// of the others are returned as well.
func (a *Agent) requests() ([]agentRequest, error) {
	keys, passwords := map[string][]string{}, map[string]string{}
	var all []error
	for n, c := range a.Credentials {
		if !c.ByAgent() {
			continue
		}
		values, err := mountedValues(filepath.Join(a.Mounts, launcherapi.AccessMount(n)))
		if err != nil {
			all = append(all, fmt.Errorf("read accessCredentials[%d]: %w", n, err))
			continue
		}
		if c.UserPassword != nil {
			maps.Copy(passwords, values)
			continue
		}
		for _, user := range c.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users {
			keys[user] = append(keys[user], keyLines(values)...)
		}
	}
	var out []agentRequest
	for _, user := range slices.Sorted(maps.Keys(keys)) {
		out = append(out, agentRequest{"guest-ssh-add-authorized-keys", user,
			map[string]any{"username": user, "keys": append([]string{}, keys[user]...), "reset": true}, len(keys[user]) == 0})
	}
	for _, user := range slices.Sorted(maps.Keys(passwords)) {
		out = append(out, agentRequest{"guest-set-user-password", user,
			map[string]any{"username": user, "password": base64.StdEncoding.EncodeToString([]byte(passwords[user])), "crypted": false}, false})
	}
	return out, errors.Join(all...)
}

// mountedValues returns the values of a mounted Secret by key; none if the Secret does not exist.
func mountedValues(dir string) (map[string]string, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "..") { // a directory or link of the kubelet
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		out[f.Name()] = string(text)
	}
	return out, nil
}

// keyLines returns the public keys in the values of a Secret, in the order of the Secret's keys. A value has one public key a line.
func keyLines(values map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for line := range strings.Lines(values[name]) {
			if key := strings.TrimSpace(line); key != "" && !strings.HasPrefix(key, "#") {
				out = append(out, key)
			}
		}
	}
	return out
}

// PublicKeys returns the keys that cloud-init adds for the guest's user, from the mounted Secrets.
func PublicKeys(mounts string, all []kubevirt.AccessCredential, noCloud bool) ([]string, error) {
	var out []string
	for n, c := range all {
		if !c.ByCloudInit(noCloud) {
			continue
		}
		values, err := mountedValues(filepath.Join(mounts, launcherapi.AccessMount(n)))
		if err != nil {
			return nil, fmt.Errorf("read the public keys of accessCredentials: %w", err)
		}
		out = append(out, keyLines(values)...)
	}
	return out, nil
}
