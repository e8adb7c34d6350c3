package netserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// Gluster is a server with one volume of one brick. It needs root: a brick keeps attributes that only root may set. Its port is the
// one that clients expect, so a machine can run one at a time: of the packages of test/e2e, only netdisk uses it.
type Gluster struct {
	Address string
	Port    int
	Volume  string

	dir   string
	user  int
	p     *process
	count atomic.Int32
}

const glusterConf = `volume management
    type mgmt/glusterd
    option working-directory %[1]s/state
    option run-directory %[1]s/run
    option glusterd-sockfile %[1]s/run/glusterd.socket
    option transport-type socket
    option transport.address-family inet
    option transport.socket.bind-address %[2]s
    option rpc-auth-allow-insecure on
end-volume
`

// StartGluster starts glusterd and a volume whose files belong to the user that machines run as.
func StartGluster(address, dir string, user int) (*Gluster, error) {
	g := &Gluster{Address: address, Port: 24007, Volume: "vol", dir: dir, user: user}
	for _, d := range []string{"state", "run", "brick"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("make a directory for Gluster: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "glusterd.vol"), fmt.Appendf(nil, glusterConf, dir, address), 0o600); err != nil {
		return nil, fmt.Errorf("configure Gluster: %w", err)
	}
	// Bricks are daemons: in a process namespace of their own they end with the program that made it.
	var err error
	g.p, err = start(filepath.Join(dir, "glusterd.out"), nil, "unshare", "--pid", "--fork", "--kill-child", "glusterd", "-N",
		"-f", filepath.Join(dir, "glusterd.vol"), "-p", filepath.Join(dir, "run", "glusterd.pid"), "-l", filepath.Join(dir, "glusterd.log"))
	if err != nil {
		return nil, err
	}
	if err := g.p.await("glusterd", func() error { return g.admin("volume", "list") }); err != nil {
		return nil, err
	}
	owner := strconv.Itoa(user)
	for _, order := range [][]string{
		{"volume", "create", g.Volume, address + ":" + filepath.Join(dir, "brick"), "force"},
		{"volume", "set", g.Volume, "server.allow-insecure", "on"},
		{"volume", "set", g.Volume, "storage.owner-uid", owner},
		{"volume", "set", g.Volume, "storage.owner-gid", owner},
		{"volume", "start", g.Volume},
	} {
		if err := g.admin(order...); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *Gluster) admin(args ...string) error {
	_, err := run(nil, "gluster", append([]string{"--mode=script", "--glusterd-sock=" + filepath.Join(g.dir, "run", "glusterd.socket")}, args...)...)
	return err
}

// Close ends the server and its brick.
func (g *Gluster) Close() { g.p.stop() }

// Add makes a file that is a copy of a disk, through the volume as its clients do: its path, and where its bytes are.
func (g *Gluster) Add(disk string) (name, file string, err error) {
	name = fmt.Sprintf("disk-%d.img", g.count.Add(1))
	file = filepath.Join(g.dir, "brick", name)
	_, err = run(nil, "qemu-img", "convert", "-f", "raw", "-O", "raw", disk, fmt.Sprintf("gluster://%s:%d/%s/%s", g.Address, g.Port, g.Volume, name))
	if err != nil {
		return name, file, err
	}
	if err := os.Chown(file, g.user, g.user); err != nil { // it was made by root, and machines are not
		return name, file, fmt.Errorf("give the disk to the machines' user: %w", err)
	}
	return name, file, nil
}
