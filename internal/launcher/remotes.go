package launcher

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// remotes are a machine's network disks: what they need besides their address, and what has to end with the machine.
type remotes struct {
	door   door
	logins map[string]*netdisk.Login // by volume
	tls    bool                      // there are certificates for NBD in tlsDir
	ends   []func()
	mu     sync.Mutex
	opened map[string]*backing.Remote // by volume; others read it
	dirs   map[string]string          // by volume: where the Secrets of one that was added are
	added  map[string][]func()        // by volume: what ends when one that was added goes
	closes map[string]func()          // by volume: what our own reader of it needs no longer
	// servers are the addresses that a volume may be opened at, by volume: where the launcher has logged in. One without has any.
	servers map[string][]string
}

func newRemotes(m launcherapi.Machine) (*remotes, error) {
	d, err := newDoor(m.Reach)
	if err != nil {
		return nil, err
	}
	r := &remotes{door: d, logins: map[string]*netdisk.Login{}, opened: map[string]*backing.Remote{}, dirs: map[string]string{}, added: map[string][]func(){},
		closes: map[string]func(){}}
	r.tls, err = certificates(m, tlsDir)
	return r, err
}

// mounted is where the Secrets of a volume are.
func (r *remotes) mounted(volume string) string {
	if dir, ok := r.dirs[volume]; ok {
		return dir
	}
	return filepath.Join(launcherapi.MountDir, volume)
}

// until has something end with the volume, or with the machine if it was started with the volume.
func (r *remotes) until(volume string, ends ...func()) {
	if _, ok := r.dirs[volume]; ok {
		r.added[volume] = append(r.added[volume], ends...)
	} else {
		r.ends = append(r.ends, ends...)
	}
}

// letGo forgets a disk that QEMU has closed: nobody asks its server any more.
func (r *remotes) letGo(volume string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opened, volume)
	if end := r.closes[volume]; end != nil {
		end()
	}
}

func (r *remotes) close() {
	for _, end := range r.ends {
		end()
	}
}

// conf is what QEMU's part of libvirt's configuration has to say of them.
func (r *remotes) conf() string {
	if !r.tls {
		return ""
	}
	return fmt.Sprintf("nbd_tls_x509_cert_dir = %q\nnbd_tls_x509_verify = 1\n", tlsDir)
}

// backing opens the way to a network disk: its server answers, machines may talk to it, and its login is at hand.
func (r *remotes) backing(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) (backing.Disk, error) {
	l, err := readLogin(v, r.mounted(v.Name))
	var named *faulty
	switch {
	case errors.As(err, &named):
		return backing.Disk{}, err
	case err != nil:
		return backing.Disk{}, &faulty{launcherapi.DiskDenied, err}
	}
	user := ""
	if l != nil {
		user, r.logins[v.Name] = l.User, l
	}
	at, err := r.open(ctx, m, v, user)
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

// open is the disk with the addresses of its servers that answer.
func (r *remotes) open(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume, user string) (*backing.Remote, error) {
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
	at.Only = r.servers[v.Name]
	return at, r.door.enter(ctx, at)
}

// keep gives libvirt the logins of the disks that QEMU is to open.
func (r *remotes) keep(h *libvirtd.Daemon) error {
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

// harmless looks at the header of a qcow2 disk before QEMU does: QEMU would open whatever file it names.
func (r *remotes) harmless(ctx context.Context, m launcherapi.Machine, volume string, at *backing.Remote, l *netdisk.Login) error {
	node, err := json.Marshal(map[string]any{"driver": "raw", "file": at.Node(backing.SecretObject, backing.TlsObject(at))})
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

// program runs one of QEMU's programs on a disk. The login goes through a pipe; what it says goes to said if that is not nil.
func (r *remotes) program(ctx context.Context, m launcherapi.Machine, at *backing.Remote, l *netdisk.Login, said io.Writer, name string, args ...string) error {
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
		return serverFault(m, fmt.Errorf("%s %s: %w", name, verb, err))
	}
	return nil
}
