package netserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"crypto/rand"
)

// Ceph is a cluster of one monitor and one store, with cephx and one pool.
type Ceph struct {
	Monitor         string // host:port
	Pool, User, Key string

	dir   string
	mon   *process
	osd   *process
	count atomic.Int32
}

const cephConf = `[global]
fsid = %[2]s
mon host = [v2:%[3]s:%[4]d,v1:%[3]s:%[5]d]
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
public addr = %[3]s
cluster addr = %[3]s
run dir = %[1]s/run
admin socket = %[1]s/run/$name.asok
log file = %[1]s/run/$name.log
keyring = %[1]s/keyring
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
osd crush chooseleaf type = 0
mon pg warn min per osd = 0
mon data avail warn = 1
mon data avail crit = 0
[mon]
mon data = %[1]s/mon
[osd]
osd data = %[1]s/osd
osd objectstore = bluestore
bluestore block size = 4294967296
bluestore block create = true
osd memory target = 939524096
bluestore cache autotune = false
bluestore cache size = 33554432
osd op num shards = 1
osd op num threads per shard = 2
osd class update on start = false
`

func (c *Ceph) env() []string {
	return []string{"CEPH_CONF=" + filepath.Join(c.dir, "ceph.conf"), "CEPH_ARGS=--no-log-to-stderr"}
}

func (c *Ceph) do(name string, args ...string) (string, error) { return run(c.env(), name, args...) }

// StartCeph makes a cluster, without a manager and without systemd.
func StartCeph(address, dir string) (*Ceph, error) {
	v2, err := FreePort(address)
	if err != nil {
		return nil, err
	}
	v1, err := FreePort(address)
	if err != nil {
		return nil, err
	}
	c := &Ceph{Monitor: fmt.Sprintf("%s:%d", address, v1), Pool: "vms", User: "vm", dir: dir}
	id, store := uuid(), uuid()
	for _, d := range []string{"mon", "osd", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("make a directory for Ceph: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ceph.conf"), fmt.Appendf(nil, cephConf, dir, id, address, v2, v1), 0o600); err != nil {
		return nil, fmt.Errorf("configure Ceph: %w", err)
	}
	keyring, monmap := filepath.Join(dir, "keyring"), filepath.Join(dir, "monmap")
	if err := c.all([][]string{
		{"ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"},
		{"ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"},
		{"ceph-authtool", keyring, "--gen-key", "-n", "osd.0", "--cap", "mon", "allow profile osd", "--cap", "osd", "allow *", "--cap", "mgr", "allow profile osd"},
		{"monmaptool", "--create", "--clobber", "--fsid", id, "--addv", "a", fmt.Sprintf("[v2:%s:%d,v1:%s:%d]", address, v2, address, v1), monmap},
		{"ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring},
	}); err != nil {
		return nil, err
	}
	if c.mon, err = start(filepath.Join(dir, "mon.log"), c.env(), "ceph-mon", "-f", "-i", "a"); err != nil {
		return nil, err
	}
	if err := c.mon.await("ceph-mon", func() error { _, err := c.do("ceph", "--connect-timeout", "3", "-s"); return err }); err != nil {
		return nil, err
	}
	if err := c.all([][]string{
		{"ceph", "osd", "new", store},
		{"ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", store, "--monmap", monmap},
	}); err != nil {
		return nil, err
	}
	if c.osd, err = start(filepath.Join(dir, "osd.log"), c.env(), "ceph-osd", "-f", "-i", "0"); err != nil {
		return nil, err
	}
	if err := c.osd.await("ceph-osd", func() error { _, err := c.do("ceph", "osd", "pool", "create", c.Pool, "8", "8"); return err }); err != nil {
		return nil, err
	}
	if err := c.all([][]string{{"ceph", "osd", "pool", "application", "enable", c.Pool, "rbd"},
		{"ceph", "auth", "get-or-create", "client." + c.User, "mon", "profile rbd", "osd", "profile rbd pool=" + c.Pool}}); err != nil {
		return nil, err
	}
	c.Key, err = c.do("ceph", "auth", "get-key", "client."+c.User)
	return c, err
}

func (c *Ceph) all(commands [][]string) error {
	for _, a := range commands {
		if _, err := c.do(a[0], a[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Full makes the cluster full, or ends that: the store counts as full from its first byte on.
func (c *Ceph) Full(full bool) error {
	order, ratios := []string{"nearfull", "backfillfull", "full"}, []string{"0.000001", "0.000002", "0.000003"}
	if !full {
		order, ratios = []string{"full", "backfillfull", "nearfull"}, []string{"0.95", "0.90", "0.85"}
	}
	for i, what := range order {
		if _, err := c.do("ceph", "osd", "set-"+what+"-ratio", ratios[i]); err != nil {
			return err
		}
	}
	return c.osd.await("the pool to be full or not", func() error {
		text, err := c.do("ceph", "osd", "dump")
		if err == nil && strings.Contains(text, "hashpspool,full") != full {
			err = fmt.Errorf("the pool is not as it should be: %s", text)
		}
		return err
	})
}

// Close ends the cluster.
func (c *Ceph) Close() {
	c.osd.stop()
	c.mon.stop()
}

// Add makes an image that is a copy of a disk.
func (c *Ceph) Add(disk string) (string, error) {
	name := fmt.Sprintf("disk-%d", c.count.Add(1))
	_, err := c.do("rbd", "import", "--no-progress", disk, c.Pool+"/"+name)
	return name, err
}

// Export writes an image's bytes to a file.
func (c *Ceph) Export(image, file string) error {
	_, err := c.do("rbd", "export", "--no-progress", c.Pool+"/"+image, file)
	return err
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
