// Package handover is a disk that a holder hands over to a running guest: its open files, and the connection to the holder.
package handover

import (
	"net"
	"os"

	"github.com/berth-vm/berth/internal/rendezvous"
)

// Disk is a disk that a holder hands over: what it is, its open files, and the connection to the holder.
type Disk struct {
	rendezvous.Offer
	File   *os.File
	Holder *net.UnixConn
	Reader *os.File // the same disk, opened for reading; nil if file is
}

// Close closes all files that were handed over.
func (o Disk) Close() {
	o.CloseFiles()
	_ = o.Holder.Close()
}

// CloseFiles closes the files and leaves the connection to the holder open.
func (o Disk) CloseFiles() {
	_ = o.File.Close()
	if o.Reader != nil {
		_ = o.Reader.Close()
	}
}
