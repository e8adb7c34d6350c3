// Package remote opens a machine's network disks: it asks whether their servers may be used, connects to them, logs in, and says in the
// words of the API what is wrong with a server.
//
// QEMU reads and writes the disks. The package knows their protocols from internal/netdisk only.
package remote

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/libvirtd"
	"github.com/berth-vm/berth/internal/launcher/tool"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

// Disks are a machine's network disks. All maps are by volume.
type Disks struct {
	connector connector
	logins    map[string]*netdisk.Login
	tls       bool     // tlsDir has certificates for NBD
	ends      []func() // run when the machine ends
	mu        sync.Mutex
	opened    map[string]*backing.Remote // guarded by mu
	dirs      map[string]string          // the directories with the Secrets of disks that were added while the guest ran
	added     map[string][]func()        // run when a disk that was added is removed
	closes    map[string]func()          // end Berth's own readers of disks; guarded by mu
	// servers are the addresses that a volume may be opened at: where the launcher has logged in. A volume that is not listed may be opened at
	// any address.
	Servers map[string][]string
}

// New prepares the network disks of a machine. It connects to nothing.
func New(m launcherapi.Machine) (*Disks, error) {
	d, err := newConnector(m.Reach)
	if err != nil {
		return nil, err
	}
	r := &Disks{connector: d, logins: map[string]*netdisk.Login{}, opened: map[string]*backing.Remote{}, dirs: map[string]string{}, added: map[string][]func(){},
		closes: map[string]func(){}}
	r.tls, err = certificates(m, tlsDir)
	return r, err
}

// mounted is the directory with the Secrets of a volume.
func (r *Disks) mounted(volume string) string {
	if dir, ok := r.dirs[volume]; ok {
		return dir
	}
	return filepath.Join(launcherapi.MountDir, volume)
}

// until runs functions when the volume is removed, or, if the machine was started with it, when the machine ends.
func (r *Disks) until(volume string, ends ...func()) {
	if _, ok := r.dirs[volume]; ok {
		r.added[volume] = append(r.added[volume], ends...)
	} else {
		r.ends = append(r.ends, ends...)
	}
}

// Release ends what serves a disk that QEMU has closed, and no longer asks whether its server answers.
func (r *Disks) Release(volume string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opened, volume)
	if end := r.closes[volume]; end != nil {
		end()
	}
}

// Close ends what serves the disks that the machine was started with.
func (r *Disks) Close() {
	for _, end := range r.ends {
		end()
	}
}

// LibvirtConf returns what the network disks need in libvirt's qemu.conf.
func (r *Disks) LibvirtConf() string {
	if !r.tls {
		return ""
	}
	return fmt.Sprintf("nbd_tls_x509_cert_dir = %q\nnbd_tls_x509_verify = 1\n", tlsDir)
}

// Open prepares a network disk for QEMU: its server is allowed and answers, its login is read, and if it is a qcow2 its header refers to no
// other file. The errors that users can act on are of type *faulty.
func (r *Disks) Open(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) (backing.Disk, error) {
	l, err := readLogin(v, r.mounted(v.Name))
	var named *Error
	switch {
	case errors.As(err, &named):
		return backing.Disk{}, err
	case err != nil:
		return backing.Disk{}, &Error{launcherapi.DiskDenied, err}
	}
	user := ""
	if l != nil {
		user, r.logins[v.Name] = l.User, l
	}
	at, err := r.connect(ctx, m, v, user)
	if err != nil {
		return backing.Disk{}, err
	}
	r.mu.Lock()
	r.opened[v.Name] = at
	r.mu.Unlock()
	format := string(v.DiskFormat())
	if format == string(kubevirt.FormatQCOW2) {
		if err := r.harmless(ctx, m, v.Name, at, l); err != nil {
			return backing.Disk{}, err
		}
	}
	return backing.Disk{Remote: at, Format: format, ReadOnly: v.Reads()}, nil
}

// connect returns the disk with the addresses of those of its servers that answer.
func (r *Disks) connect(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume, user string) (*backing.Remote, error) {
	if netdisk.Of(v.Protocol()).OwnReader {
		return r.web(ctx, v)
	}
	at, err := backing.NewRemote(m, v, user)
	if err != nil {
		return nil, err
	}
	_, at.Granted = m.Direct[v.Name]
	if at.TLS {
		at.TLSDir = tlsDir
		if dir, ok := r.dirs[v.Name]; ok {
			at.TLSDir = filepath.Join(dir, "tls")
		}
	}
	at.Only = r.Servers[v.Name]
	return at, r.connector.enter(ctx, at)
}

// AddSecrets gives libvirt the logins of the disks that QEMU opens.
func (r *Disks) AddSecrets(h *libvirtd.Daemon) error {
	for volume, l := range r.logins {
		at := r.opened[volume]
		if at == nil {
			continue
		}
		if err := h.AddSecret(netdisk.Of(at.Protocol).SecretType, backing.SecretUsage(volume), l.Value); err != nil {
			return fmt.Errorf("give libvirt the secret of volume %s: %w", volume, err)
		}
	}
	return nil
}

// harmless reads the header of a qcow2 disk before QEMU does, and returns an error if it refers to another file, which QEMU would open.
func (r *Disks) harmless(ctx context.Context, m launcherapi.Machine, volume string, at *backing.Remote, l *netdisk.Login) error {
	node, err := json.Marshal(map[string]any{"driver": "raw", "file": at.Node(backing.SecretObject, backing.TLSObject(at))})
	if err != nil {
		return fmt.Errorf("describe the disk: %w", err)
	}
	head := filepath.Join(launcherapi.StateDir, volume+".head")
	defer func() { _ = os.Remove(head) }()
	err = r.program(ctx, m, at, l, nil, "qemu-img", "dd", "-f", "raw", "-O", "raw", "bs=65536", "count=1",
		"if=json:"+string(node), "of="+head)
	if err != nil {
		return err
	}
	format, err := backing.DetectFormat(head)
	if err == nil && format != string(kubevirt.FormatQCOW2) {
		err = fmt.Errorf("its format is said to be qcow2 and it is not; leave format out if it is raw")
	}
	return err
}

// QEMUImg runs qemu-img on a network disk of the machine, with the disk's login. Its output goes to said if that is not nil.
func (r *Disks) QEMUImg(ctx context.Context, m launcherapi.Machine, volume string, at *backing.Remote, said io.Writer, args ...string) error {
	return r.program(ctx, m, at, r.logins[volume], said, "qemu-img", args...)
}

// Dialer returns a function that connects to allowed servers only, for a client of that protocol.
func (r *Disks) Dialer(protocol string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return r.connector.dialer(protocol)
}

// program runs one of QEMU's programs on a disk. The password goes through a pipe; the output goes to said if that is not nil.
func (r *Disks) program(ctx context.Context, m launcherapi.Machine, at *backing.Remote, l *netdisk.Login, said io.Writer, name string, args ...string) error {
	verb, rest := args[0], args[1:]
	objects := []string{verb}
	if at.TLS {
		objects = append(objects, "--object", "tls-creds-x509,id=certificates,endpoint=client,verify-peer=on,dir="+at.TLSDir)
	}
	cmd := exec.CommandContext(ctx, name)
	if l != nil {
		from, to, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		defer func() { _ = from.Close() }()
		_, err = to.WriteString(base64.StdEncoding.EncodeToString(l.Value)) // shorter than any pipe's buffer
		_ = to.Close()
		if err != nil {
			return fmt.Errorf("write to a pipe: %w", err)
		}
		cmd.ExtraFiles = []*os.File{from} // number 3
		objects = append(objects, "--object", "secret,id="+backing.SecretObject+",format=base64,file=/dev/fd/3")
	}
	cmd.Args = append(append([]string{name}, objects...), rest...)
	if err := tool.RunTo(cmd, said); err != nil {
		return Classify(m, fmt.Errorf("%s %s: %w", name, verb, err))
	}
	return nil
}

// probe opens a disk with a program beside QEMU and closes it: while QEMU itself opens a disk its monitor waits for the server, and so does
// the guest.
func (r *Disks) probe(ctx context.Context, m launcherapi.Machine, b backing.Disk, l *netdisk.Login) error {
	node, err := json.Marshal(map[string]any{"driver": "raw", "read-only": true, "file": b.Remote.Node(backing.SecretObject, backing.TLSObject(b.Remote))})
	if err != nil {
		return fmt.Errorf("describe the disk: %w", err)
	}
	return r.program(ctx, m, b.Remote, l, nil, "qemu-img", "info", "-U", "json:"+string(node))
}

// SetDevice records QEMU's id of the device of a disk that was added.
func (r *Disks) SetDevice(volume, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.opened[volume]; at != nil {
		c := *at // other goroutines may read this one
		c.Device = id
		r.opened[volume] = &c
	}
}

// Unreachable returns the volumes none of whose servers answers, each with the last error.
func (r *Disks) Unreachable() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	out := map[string]string{}
	for volume, at := range r.Opened() {
		var last error
		for _, s := range at.Servers {
			if _, last = r.connector.dial(ctx, at, s); last == nil {
				break
			}
		}
		if last != nil {
			out[volume] = last.Error()
		}
	}
	return out
}

// Opened returns the network disks that are open, by volume.
func (r *Disks) Opened() map[string]*backing.Remote {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.opened)
}
