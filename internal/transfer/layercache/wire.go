// Package layercache keeps the layers of container images of one node, converted to the files that machines read, so that each is
// made once and shared by all machines of the node.
//
// A client proves that it can read a layer, or sends it, compressed as its registry has it: the cache talks to no registry and
// holds no credentials. What it makes is named by the digests of the layer and of all below it, which it has checked itself, so
// no client can store anything under another layer's name. It hands out open files that can only be read.
//
// It does not know its clients, and trusts none. It does not know machines.
package layercache

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Version is the version of the protocol. A cache of another version refuses, and the client makes its layers itself.
const Version = 1

// pieceSize is the size of the pieces of a layer that prove that the client can read it, and packet the size of a message with a
// part of a layer.
const (
	pieceSize = 64 << 10
	packet    = 64 << 10
	longest   = 4 << 10 // of what is said in words
)

// asked is the first message for each layer, the lowest layer first.
type asked struct {
	Version int    `json:"version"`
	Digest  string `json:"digest"`
	Size    int64  `json:"size"`
	Ranged  bool   `json:"ranged,omitempty"` // pieces of it can be had
}

// answer is a message of the cache. One of its fields is set.
type answer struct {
	Pieces  []int64 `json:"pieces,omitempty"` // send these, in this order
	Send    bool    `json:"send,omitempty"`   // send all of it
	Busy    bool    `json:"busy,omitempty"`   // wait for the next answer
	Layer   *Layer  `json:"layer,omitempty"`  // it comes with the open file
	Refused string  `json:"refused,omitempty"`
}

// Layer is the result for a layer.
type Layer struct {
	Size  int64  `json:"size"`            // of its filesystem
	Alone bool   `json:"alone,omitempty"` // it takes away everything below it
	Diff  string `json:"diff"`            // the digest of its archive, decompressed
	Made  bool   `json:"made,omitempty"`  // it was not there before
}

// say sends a message, and a file with it if there is one.
func say(c *net.UnixConn, message any, file *os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > longest {
		return fmt.Errorf("a message of %d bytes; at most %d are read", len(text), longest)
	}
	var rights []byte
	if file != nil {
		rights = syscall.UnixRights(int(file.Fd()))
	}
	_, _, err = c.WriteMsgUnix(text, rights, nil)
	return err
}

// hear waits for a message. A file that comes with it is returned if one is wanted, and closed if not.
func hear(c *net.UnixConn, message any, wanted bool) (*os.File, error) {
	text, control := make([]byte, longest), make([]byte, syscall.CmsgSpace(4))
	n, cn, _, _, err := c.ReadMsgUnix(text, control)
	if err != nil {
		return nil, err
	}
	file := oneFile(control[:cn])
	if file != nil && !wanted {
		_ = file.Close()
		file = nil
	}
	if n == 0 {
		err = errors.New("the other side is gone")
	} else if err = json.Unmarshal(text[:n], message); err != nil {
		err = fmt.Errorf("understand the other side: %w", err)
	}
	if err != nil && file != nil {
		_ = file.Close()
		file = nil
	}
	return file, err
}

// oneFile returns the file that came with a message, if one did; there is no room for more.
func oneFile(control []byte) *os.File {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	var file *os.File
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			if file != nil {
				_ = syscall.Close(fd)
				continue
			}
			file = os.NewFile(uintptr(fd), "layer")
		}
	}
	return file
}

// paced reads packets. Each must arrive in time, and all of them too: a slower client is disconnected.
type paced struct {
	c    *net.UnixConn
	idle time.Duration
	end  time.Time
}

// Read implements io.Reader. What does not fit into p is lost, so p must have room for a packet.
func (p paced) Read(b []byte) (int, error) {
	next := time.Now().Add(p.idle)
	if next.After(p.end) {
		next = p.end
	}
	if err := p.c.SetReadDeadline(next); err != nil {
		return 0, err
	}
	return p.c.Read(b)
}

// pieces returns how many pieces a blob has, and piece how long one is.
func pieces(size int64) int64 { return (size + pieceSize - 1) / pieceSize }

func piece(size, n int64) int64 { return min(pieceSize, size-n*pieceSize) }
