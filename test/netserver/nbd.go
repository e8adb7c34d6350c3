package netserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// NBD is an NBD server whose exports are the files of a directory.
type NBD struct {
	Address string
	Port    int
	// Certificates are the certificates that a client needs; nil without TLS.
	Certificates *Certificates

	dir   string
	p     *process
	count atomic.Int32
}

// StartNBD starts nbdkit. With TLS, client and server prove who they are to each other.
func StartNBD(address, dir string, tls bool) (*NBD, error) {
	port, err := FreePort(address)
	if err != nil {
		return nil, err
	}
	n := &NBD{Address: address, Port: port, dir: dir}
	if err := os.MkdirAll(n.exports(), 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for exports: %w", err)
	}
	if tls {
		if n.Certificates, err = newCertificates(address, dir); err != nil {
			return nil, err
		}
	}
	return n, n.Start()
}

// Start starts the server again after Stop.
func (n *NBD) Start() error {
	args := []string{"-f", "-i", n.Address, "-p", strconv.Itoa(n.Port)}
	if n.Certificates != nil {
		args = append(args, "--tls=require", "--tls-verify-peer", "--tls-certificates="+n.dir)
	}
	var err error
	n.p, err = start(filepath.Join(n.dir, "nbdkit.log"), nil, "nbdkit", append(args, "file", "dir="+n.exports())...)
	if err != nil {
		return err
	}
	return n.p.await("nbdkit", func() error { return answers(n.Address, n.Port) })
}

func (n *NBD) exports() string { return filepath.Join(n.dir, "exports") }

// Stop ends the server at once.
func (n *NBD) Stop() { n.p.stop() }

// Close ends the server.
func (n *NBD) Close() { n.Stop() }

// Add makes an export that is a copy of a disk: its name, and where its bytes are.
func (n *NBD) Add(disk string) (name, file string, err error) {
	name = fmt.Sprintf("disk-%d", n.count.Add(1))
	file = filepath.Join(n.exports(), name)
	return name, file, copySparse(disk, file)
}
