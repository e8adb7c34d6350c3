package launcher

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

// agentAccess has the guest agent set the keys and passwords of a machine's accessCredentials that name it, and set them again when their
// Secrets change. The agent replaces all keys of a user, as upstream's does.
type agentAccess struct {
	mounts      string
	credentials []kubevirt.AccessCredential
	ask         func(command string, arguments any) error
	log         *slog.Logger
	set         map[string][sha256.Size]byte // what was set last, by command and user
	logged      string
}

// agentRequest is the keys or the password of one user.
type agentRequest struct {
	command, user string
	arguments     map[string]any
	empty         bool // there is no key
}

func (r agentRequest) name() string { return r.command + " " + r.user }

// wanted reports whether the machine has credentials for the agent.
func (a *agentAccess) wanted() bool {
	return slices.ContainsFunc(a.credentials, func(c kubevirt.AccessCredential) bool { return c.ByAgent() })
}

// state sets what is to be set if the agent answers, and returns what there is to say: nil, or why not all is set; empty if all is.
func (a *agentAccess) state(answers bool) *string {
	if !a.wanted() {
		return nil
	}
	if !answers { // the guest may be started anew, from a disk that keeps nothing: then everything is set again
		a.set = nil
		return nil
	}
	why := ""
	if err := a.synchronize(); err != nil {
		why = short(err.Error())
	}
	return &why
}

// synchronize sets what has changed since, and returns why not all of it could be set. The rest is set all the same.
func (a *agentAccess) synchronize() error {
	requests, err := a.requests()
	all := []error{err}
	for _, r := range requests {
		text, err := json.Marshal(r.arguments)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		had, was := a.set[r.name()]
		if was && had == sum || !was && r.empty { // a user without keys keeps those that somebody else gave
			continue
		}
		if err := a.ask(r.command, r.arguments); err != nil {
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
		a.log.Warn("the guest agent does not set all of accessCredentials", "why", text)
		a.logged = text
	}
	return err
}

// requests are what the mounted Secrets ask for, in the order of commands and users. An error is about Secrets that cannot be read; the others are
// there.
func (a *agentAccess) requests() ([]agentRequest, error) {
	keys, passwords := map[string][]string{}, map[string]string{}
	var all []error
	for n, c := range a.credentials {
		if !c.ByAgent() {
			continue
		}
		values, err := mountedValues(filepath.Join(a.mounts, launcherapi.AccessMount(n)))
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

// mountedValues are the values of a mounted Secret by key; none if it does not exist.
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
		if strings.HasPrefix(f.Name(), "..") { // the kubelet's own
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

// keyLines are the public keys in the values of a Secret, each value with one key a line, in the order of the Secret's keys.
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
