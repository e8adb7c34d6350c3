package netserver

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// TGT is an iSCSI server with a target for every test.
type TGT struct {
	Address string
	Port    int
	// Targets are named after it, and a number; empty: sn.
	Name string

	dir string
	mu  sync.Mutex // tgtadm is one at a time; also of what follows
	p   *process
	tid int
	had [][]string // orders to give again after a restart
}

// LUN is a disk of a target of its own.
type LUN struct {
	Target         string // its IQN
	Number         int
	User, Password string // CHAP; empty without
	File           string // where its bytes are
}

// StartTGT starts tgtd. dir is for its files and disks.
func StartTGT(address, dir string) (*TGT, error) {
	port, err := FreePort(address)
	if err != nil {
		return nil, err
	}
	t := &TGT{Address: address, Port: port, dir: dir}
	return t, t.Start()
}

func (t *TGT) env() []string { return []string{"TGT_IPC_SOCKET=" + filepath.Join(t.dir, "tgt.sock")} }

func (t *TGT) admin(args ...string) error {
	_, err := run(t.env(), "tgtadm", append([]string{"--lld", "iscsi"}, args...)...)
	return err
}

// Start starts the server again after Stop, with all it had.
func (t *TGT) Start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = os.Remove(filepath.Join(t.dir, "tgt.sock.0"))
	var err error
	t.p, err = start(filepath.Join(t.dir, "tgtd.log"), t.env(), "tgtd", "-f", "--iscsi",
		"portal="+net.JoinHostPort(t.Address, strconv.Itoa(t.Port)))
	if err != nil {
		return err
	}
	if err := t.p.await("tgtd", func() error { return t.admin("--op", "show", "--mode", "target") }); err != nil {
		return err
	}
	for _, order := range t.had {
		if err := t.admin(order...); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the server as if its machine had lost its power. Its disks stay.
func (t *TGT) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.stop()
}

// Close ends the server.
func (t *TGT) Close() { t.Stop() }

// Add makes a target with one LUN that is a copy of a disk. A user makes it ask for CHAP.
func (t *TGT) Add(disk, user, password string) (LUN, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tid++
	tid := strconv.Itoa(t.tid)
	l := LUN{Target: "iqn.2017-01.io.kubevirt:" + cmp.Or(t.Name, "sn") + "." + tid, Number: 2, User: user, Password: password,
		File: filepath.Join(t.dir, fmt.Sprintf("lun-%s.img", tid))}
	if err := copySparse(disk, l.File); err != nil {
		return l, err
	}
	orders := [][]string{
		{"--op", "new", "--mode", "target", "--tid", tid, "-T", l.Target},
		{"--op", "new", "--mode", "logicalunit", "--tid", tid, "--lun", strconv.Itoa(l.Number), "-b", l.File},
	}
	if user != "" {
		orders = append(orders, []string{"--op", "new", "--mode", "account", "--user", user, "--password", password},
			[]string{"--op", "bind", "--mode", "account", "--tid", tid, "--user", user})
	}
	orders = append(orders, []string{"--op", "bind", "--mode", "target", "--tid", tid, "-I", "ALL"})
	for _, order := range orders {
		if err := t.admin(order...); err != nil {
			return l, err
		}
		t.had = append(t.had, order)
	}
	return l, nil
}
