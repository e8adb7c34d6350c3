package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/kubebox/internal/host"
	"github.com/berth-vm/berth/hack/kubebox/internal/image"
	"github.com/berth-vm/berth/hack/kubebox/internal/machine"
	"github.com/berth-vm/berth/hack/kubebox/internal/pki"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/state"
)

// write makes every file that the cluster's machines read: keys, configurations, the images that every pod needs.
func (b *Box) write(c state.Cluster) error {
	if err := b.writeKeys(c.Nodes); err != nil {
		return err
	}
	if err := os.WriteFile(b.Layout.Corefile(), []byte(plan.Corefile()), 0o644); err != nil {
		return fmt.Errorf("write DNS configuration: %w", err)
	}
	memory, err := host.MemoryBytes()
	if err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if err := b.writeNode(n, plan.Capacity{MemoryBytes: memory}); err != nil {
			return err
		}
	}
	return b.writeImages()
}

func (b *Box) writeKeys(nodes []plan.Node) error {
	authority, err := pki.Open(b.Layout.PKI(""), "https://"+plan.APIServerAddr(), time.Now())
	if err != nil {
		return err
	}
	ids := []pki.Identity{
		{File: "apiserver", Name: "kube-apiserver", IPs: []string{plan.ControlIP, plan.KubernetesIP, "127.0.0.1"},
			DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + plan.Domain}},
		{File: "admin", Name: "admin", Groups: []string{"system:masters"}},
		{File: "kubebox", Name: "kubebox", Groups: []string{"system:masters"}},
		{File: "controller-manager", Name: "system:kube-controller-manager"},
		{File: "scheduler", Name: "system:kube-scheduler"},
		{File: "proxy", Name: "system:kube-proxy"},
		{File: "front-proxy", Name: "front-proxy"},
	}
	for _, n := range nodes {
		ids = append(ids, pki.Identity{
			File: n.Name, Name: "system:node:" + n.Name, Groups: []string{"system:nodes"}, IPs: []string{n.IP()}, DNS: []string{n.Name},
		})
	}
	for _, id := range ids {
		if err := authority.Issue(id); err != nil {
			return err
		}
	}
	if err := authority.ServiceAccounts(); err != nil {
		return err
	}
	config, err := os.ReadFile(b.Layout.PKI("admin.kubeconfig"))
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if err := os.WriteFile(b.Layout.Kubeconfig(), config, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return giveToCaller(b.Layout.Kubeconfig())
}

// giveToCaller lets the user who called sudo read the file.
func giveToCaller(path string) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil {
		return nil // not called through sudo
	}
	if err := os.Chown(path, uid, -1); err != nil {
		return fmt.Errorf("give kubeconfig to user %d: %w", uid, err)
	}
	return nil
}

func (b *Box) writeNode(n plan.Node, capacity plan.Capacity) error {
	for _, dir := range machine.NodeDirs() {
		if err := os.MkdirAll(b.Layout.Node(n.Name, dir), 0o755); err != nil {
			return fmt.Errorf("make directory of %s: %w", n.Name, err)
		}
	}
	for dir, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock"} {
		if err := os.Symlink(target, b.Layout.Node(n.Name, dir)); err != nil && !os.IsExist(err) {
			return fmt.Errorf("link %s of %s: %w", dir, n.Name, err)
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(b.Layout.Node(n.Name, dir), 0o777|os.ModeSticky); err != nil {
			return fmt.Errorf("open %s of %s for all: %w", dir, n.Name, err)
		}
	}
	files, err := plan.NodeFiles(n, capacity)
	if err != nil {
		return err
	}
	return b.writeNodeFiles(n, files)
}

// writeNodeFiles writes configuration files by their path below the node's directory.
func (b *Box) writeNodeFiles(n plan.Node, files map[string]string) error {
	for name, content := range files {
		path := b.Layout.Node(n.Name, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make directory of %s: %w", n.Name, err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write configuration of %s: %w", n.Name, err)
		}
	}
	return nil
}

const busybox = "/bin/busybox"

func (b *Box) writeImages() error {
	store, err := image.Open(b.Layout.Images())
	if err != nil {
		return err
	}
	names, err := store.Names()
	if err != nil {
		return err
	}
	for name, build := range map[string]func(string) (v1.Image, error){plan.PauseImage: image.Pause, plan.BusyboxImage: image.Busybox} {
		if slices.Contains(names, name) {
			continue
		}
		img, err := build(busybox)
		if err != nil {
			return fmt.Errorf("make image %s: %w", name, err)
		}
		if err := store.AddImage(name, img); err != nil {
			return err
		}
	}
	return nil
}
