// Package state remembers a cluster between two commands: what it consists of (in its state directory), and to which state directory
// the cluster on this machine belongs (in /run, because names, addresses and cgroups are the machine's, not a checkout's). What
// really runs is not remembered but looked up: see package machine.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

// format changes when a newer kubebox could not continue with what an older one left.
const format = 1

// A Cluster is the content of a state directory.
type Cluster struct {
	Format int         `json:"format"`
	Nodes  []plan.Node `json:"nodes"`
	// Cut are the nodes that were unplugged from the network.
	Cut []string `json:"cut,omitempty"`
}

// NewCluster returns a cluster of those nodes.
func NewCluster(nodes []plan.Node) Cluster { return Cluster{Format: format, Nodes: nodes} }

// Node returns the node of that name.
func (c Cluster) Node(name string) (plan.Node, error) {
	known := ""
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, nil
		}
		known += " " + n.Name
	}
	return plan.Node{}, fmt.Errorf("there is no node %q; there are:%s", name, known)
}

// ErrNone means that the state directory holds no cluster.
var ErrNone = errors.New("there is no cluster: run `kubebox up`")

func clusterFile(dir string) string { return filepath.Join(dir, "cluster.json") }

// Load reads the cluster of a state directory.
func Load(dir string) (Cluster, error) {
	var c Cluster
	err := readJSON(clusterFile(dir), &c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, ErrNone
	case err != nil:
		return c, fmt.Errorf("the state directory is damaged (%w): run `kubebox down` and start afresh", err)
	case c.Format != format:
		return c, fmt.Errorf("the state directory %s was written by another version of kubebox: run `kubebox down` and start afresh", dir)
	}
	return c, nil
}

// Save writes the cluster into its state directory.
func (c Cluster) Save(dir string) error { return writeJSON(clusterFile(dir), c) }

// Runtime is the directory of the owner file and the lock; a variable so that tests can have their own.
var Runtime = "/run"

type owner struct {
	StateDir string `json:"stateDir"`
}

func ownerFile() string { return filepath.Join(Runtime, "kubebox.json") }

// Owner returns the state directory of the cluster that was last started on this machine and not taken down since, whether it
// still runs or not; "" if there is none.
func Owner() (string, error) {
	var o owner
	err := readJSON(ownerFile(), &o)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find out whose cluster was last on this machine (remove %s if none runs): %w", ownerFile(), err)
	}
	return o.StateDir, nil
}

// SetOwner records the state directory of the cluster on this machine; "" if there is none.
func SetOwner(stateDir string) error {
	if stateDir != "" {
		return writeJSON(ownerFile(), owner{StateDir: stateDir})
	}
	if err := os.Remove(ownerFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget cluster: %w", err)
	}
	return nil
}

// Lock waits until no other kubebox command changes the machine's cluster. The lock ends with the process.
func Lock(waiting func()) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(Runtime, "kubebox.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return f, nil
	}
	waiting()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("wait for lock: %w", err)
	}
	return f, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces the file in one step, so that a reader or a crash never sees half of it.
func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}
