// Package plan says what a kubebox cluster consists of: addresses, paths, machines, and the components that run on each with
// their arguments and configuration files. It is pure: it reads no file, starts nothing, and does not know whether any of what
// it describes exists.
package plan

import (
	"fmt"
	"path/filepath"
	"regexp"
)

// The cluster's addresses. They are the same on every machine, so only one cluster runs on a machine at a time.
const (
	ControlName = "control"
	ControlIP   = "10.77.0.1"
	// HostIP is the machine's own end of the cluster network: what a test serves there, every pod can reach.
	HostIP   = "10.77.0.254"
	HostName = "host.kubebox.internal"
	HostLink = "kubebox0"

	NodeCIDR     = "10.77.0.0/24"
	PodCIDR      = "10.88.0.0/16"
	ServiceCIDR  = "10.96.0.0/16"
	DNSIP        = "10.96.0.10"
	KubernetesIP = "10.96.0.1"
	Domain       = "cluster.local"

	APIServerPort = 6443
	RegistryAddr  = ControlIP + ":5000"

	PauseImage   = "registry.k8s.io/pause:3.10"
	BusyboxImage = "docker.io/library/busybox:latest"

	// Mounted is the path at which every machine of the cluster has the state directory, wherever the checkout is.
	Mounted = "/run/kubebox"
	// Programs is the search path inside a machine: Debian's own programs, never something newer from /usr/local that
	// would mix versions of containerd and its shim.
	Programs = "/usr/sbin:/usr/bin:/sbin:/bin"
)

// maxNodes keeps node addresses (10.77.0.11 and up) clear of HostIP.
const maxNodes = 99

// A Node is one Kubernetes node. Index (from 1) gives it its addresses and never changes while the node exists.
type Node struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
}

// IP returns the node's address on the cluster network.
func (n Node) IP() string { return fmt.Sprintf("10.77.0.%d", 10+n.Index) }

// PodCIDR returns the range the node's pods get addresses from.
func (n Node) PodCIDR() string { return fmt.Sprintf("10.88.%d.0/24", n.Index) }

// Port returns the name of the bridge port the node is plugged into, in the control machine's network namespace.
func (n Node) Port() string { return fmt.Sprintf("port%d", n.Index) }

var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// NewNode returns a node of that name with the lowest index none of the existing nodes has.
func NewNode(name string, existing []Node) (Node, error) {
	if !nodeName.MatchString(name) || name == ControlName {
		return Node{}, fmt.Errorf("%q cannot name a node: use lower case letters, digits and dashes, at most 32, and not %q", name, ControlName)
	}
	used := map[int]bool{}
	for _, n := range existing {
		if n.Name == name {
			return Node{}, fmt.Errorf("node %s already exists", name)
		}
		used[n.Index] = true
	}
	for i := 1; i <= maxNodes; i++ {
		if !used[i] {
			return Node{Name: name, Index: i}, nil
		}
	}
	return Node{}, fmt.Errorf("the cluster already has %d nodes, which is the most it can address", maxNodes)
}

// A Layout names the files of a cluster below its state directory. The same names hold inside the machines, below Mounted.
type Layout struct{ Dir string }

// Inside returns the layout as the cluster's own machines see it.
func Inside() Layout { return Layout{Dir: Mounted} }

// PKI returns the file of that name in the directory of keys and certificates.
func (l Layout) PKI(name string) string { return filepath.Join(l.Dir, "pki", name) }

// Kubeconfig returns the administrator's configuration for kubectl.
func (l Layout) Kubeconfig() string { return filepath.Join(l.Dir, "kubeconfig") }

// Node returns a directory or file of that node, as the machine that holds the checkout sees it.
func (l Layout) Node(name string, elem ...string) string {
	return filepath.Join(append([]string{l.Dir, "nodes", name}, elem...)...)
}

// Spec returns the file that tells a machine's init what to run.
func (l Layout) Spec(machine string) string { return filepath.Join(l.Dir, "machines", machine+".json") }

// Status returns the file in which a machine's init says how its components are doing.
func (l Layout) Status(machine string) string {
	return filepath.Join(l.Dir, "machines", machine+".status.json")
}

// Log returns the log of one component.
func (l Layout) Log(machine, component string) string {
	return filepath.Join(l.Dir, "logs", machine, component+".log")
}

// Program returns an extra program built for the cluster.
func (l Layout) Program(name string) string { return filepath.Join(l.Dir, "bin", name) }

// Etcd is etcd's data directory.
func (l Layout) Etcd() string { return filepath.Join(l.Dir, "etcd") }

// Images returns the OCI layout that the cluster's registry serves.
func (l Layout) Images() string { return filepath.Join(l.Dir, "images") }

// Corefile returns the DNS server's configuration.
func (l Layout) Corefile() string { return filepath.Join(l.Dir, "Corefile") }

// A Component is one program that a machine keeps running.
type Component struct {
	Name string `json:"name"`
	// Program is an absolute path, or empty for the applet of kubebox's own binary that Name tells.
	Program string   `json:"program,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Needs are URLs that must be answered with 200 before the component is started.
	Needs []string `json:"needs,omitempty"`
}

// A Machine is a set of namespaces with an init that keeps its components running: the control plane, or a node.
type Machine struct {
	Name       string      `json:"name"`
	Node       *Node       `json:"node,omitempty"`
	Disks      []Disk      `json:"disks,omitempty"`
	Pool       *Disk       `json:"pool,omitempty"`
	Components []Component `json:"components"`
	// Cgroup is made before the machine starts; the node's pods live below it.
	Cgroup string `json:"cgroup,omitempty"`
}

// Component returns the machine's component of that name.
func (m Machine) Component(name string) (Component, bool) {
	for _, c := range m.Components {
		if c.Name == name {
			return c, true
		}
	}
	return Component{}, false
}
