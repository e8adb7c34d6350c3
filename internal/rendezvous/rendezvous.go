// Package rendezvous lets two pods of one node talk without a network and without sharing a volume: the node's agent makes a pair
// of connected sockets and gives each of them an end. Over theirs, a disk's holder hands the launcher an open file, which
// needs no mount, no device node and no rule of a device cgroup in the launcher's pod.
//
// It does not know which pods may meet; the agent does. Neither side trusts the other: messages are bounded and a file too
// many is closed.
package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Socket is the name of the socket a pod listens on for introductions to the pods of disks, and LayersSocket of the one that a launcher listens on
// while it wants to be introduced to the node's cache of layers.
const (
	Socket       = "meet.sock"
	LayersSocket = "layers.sock"
)

// Hello is the agent's message with an end of the pair.
type Hello struct {
	From string `json:"from,omitempty"` // the namespace of the other side, where that matters
}

// patience is how long an introduction may take: both sides are on one machine and do nothing else meanwhile.
const patience = 5 * time.Second

// Offer is a holder's message with the open disk: it describes the disk.
type Offer struct {
	Volume   string `json:"volume"`
	Device   bool   `json:"device"` // a block device, not a file
	ReadOnly bool   `json:"readOnly,omitempty"`
	Login    bool   `json:"login,omitempty"` // not the disk, but what is needed to log in at its server
}

// Answer is a launcher's message about a disk. After Attached, Released follows when the guest has released it.
type Answer struct {
	Attached bool   `json:"attached,omitempty"`
	Released bool   `json:"released,omitempty"`
	Refused  string `json:"refused,omitempty"` // why the guest cannot have it
}

// Serve takes introductions in dir until the listener is closed. take is given this side's end and says whether it wants
// it; it owns the end then.
func Serve(dir string, take func(*net.UnixConn) bool) (*net.UnixListener, error) {
	return ServeAt(filepath.Join(dir, Socket), func(c *net.UnixConn, _ Hello) bool { return take(c) })
}

// ServeAt is Serve for a socket of another name, and for those who want to know more.
func ServeAt(path string, take func(*net.UnixConn, Hello) bool) (*net.UnixListener, error) {
	_ = os.Remove(path) // of a container that ran before in this pod
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("wait for introductions: %w", err)
	}
	// The agent is another user. No one else can reach this directory.
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go introduced(c, take) // one that says nothing delays no one else
		}
	}()
	return l, nil
}

func introduced(agent *net.UnixConn, take func(*net.UnixConn, Hello) bool) {
	defer func() { _ = agent.Close() }()
	_ = agent.SetDeadline(time.Now().Add(patience))
	var hello Hello
	f, err := receive(agent, &hello, 1)
	if err != nil || len(f) == 0 {
		return
	}
	defer func() { _ = f[0].Close() }()
	end, err := net.FileConn(f[0])
	if err != nil {
		return
	}
	pair, ok := end.(*net.UnixConn)
	word := "no"
	if ok && take(pair, hello) {
		word = "yes"
	} else {
		_ = end.Close()
	}
	_, _ = agent.Write([]byte(word))
}

// errDeclined: one of the two has company already, or is leaving.
var errDeclined = errors.New("declined")

// Introduce gives each of the two connections an end of a new pair of sockets.
func Introduce(holder, launcher *net.UnixConn) error {
	return introduce([2]*net.UnixConn{holder, launcher}, [2]string{"holder", "launcher"}, Hello{})
}

// IntroduceCache introduces a launcher of a namespace to the node's cache of layers.
func IntroduceCache(cache, launcher *net.UnixConn, namespace string) error {
	return introduce([2]*net.UnixConn{cache, launcher}, [2]string{"cache", "launcher"}, Hello{From: namespace})
}

func introduce(two [2]*net.UnixConn, names [2]string, hello Hello) error {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a pair of sockets: %w", err)
	}
	for i, c := range two {
		end := os.NewFile(uintptr(ends[i]), "pair")
		defer func() { _ = end.Close() }() // what was not taken ends with this
		if err := give(c, end, hello); err != nil {
			return fmt.Errorf("introduce the %s: %w", names[i], err)
		}
	}
	return nil
}

func give(c *net.UnixConn, end *os.File, hello Hello) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := send(c, hello, end); err != nil {
		return err
	}
	word := make([]byte, 8)
	n, err := c.Read(word)
	if err != nil {
		return err
	}
	if string(word[:n]) != "yes" {
		return errDeclined
	}
	return nil
}

// SendOffer hands an open disk over: as the guest is to have it and, if that is for writing, once more for reading.
func SendOffer(c *net.UnixConn, o Offer, disk ...*os.File) error { return send(c, o, disk...) }

// ReceiveOffer returns the launcher's side of SendOffer. The files are the caller's.
func ReceiveOffer(c *net.UnixConn) (Offer, []*os.File, error) {
	var o Offer
	f, err := receive(c, &o, 2)
	if err == nil && len(f) == 0 {
		err = errors.New("an offer without a disk")
	}
	return o, f, err
}

// SendAnswer sends the holder the result for its disk.
func SendAnswer(c *net.UnixConn, a Answer) error { return send(c, a) }

// ReceiveAnswer waits for the launcher's word. An error means that the launcher is gone.
func ReceiveAnswer(c *net.UnixConn) (Answer, error) {
	var a Answer
	_, err := receive(c, &a, 0)
	return a, err
}

// longest is the size of the longest message: an answer with a sentence of QEMU's.
const longest = 4 << 10

func send(c *net.UnixConn, message any, files ...*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > longest {
		return fmt.Errorf("a message of %d bytes; at most %d are read", len(text), longest)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, 0, len(files))
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		rights = syscall.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(text, rights, nil); err != nil {
		return fmt.Errorf("speak to the other side: %w", err)
	}
	return nil
}

// receive reads a message and at most so many files that come with it.
func receive(c *net.UnixConn, message any, most int) ([]*os.File, error) {
	text, control := make([]byte, longest), make([]byte, syscall.CmsgSpace(4*max(most, 1)))
	n, cn, _, _, err := c.ReadMsgUnix(text, control)
	if err != nil {
		return nil, fmt.Errorf("listen to the other side: %w", err)
	}
	files, err := filesIn(control[:cn], most)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.Join(errors.New("the other side is gone"), closeAll(files))
	}
	if err := json.Unmarshal(text[:n], message); err != nil {
		return nil, errors.Join(fmt.Errorf("understand the other side: %w", err), closeAll(files))
	}
	return files, nil
}

func closeAll(files []*os.File) error {
	var err error
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// filesIn returns the files that came with a message, as many as are wanted; the others are closed.
func filesIn(control []byte, most int) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("read what came with a message: %w", err)
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			if len(files) == most {
				_ = syscall.Close(fd)
				continue
			}
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}
