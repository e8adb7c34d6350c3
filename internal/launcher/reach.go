package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/reach"
)

// dialing is how long a server may take to answer before it counts as unreachable.
const dialing = 10 * time.Second

// faulty is an error of a disk's server that has a name of its own among the machine's reasons.
type faulty struct {
	fault launcherapi.Fault
	err   error
}

func (f *faulty) Error() string { return f.err.Error() }
func (f *faulty) Unwrap() error { return f.err }

// door checks whom the pod's network disks talk to.
type door struct {
	rules reach.Rules
	own   []netip.Addr
}

func newDoor(rules reach.Rules) (door, error) {
	own, err := reach.Own()
	return door{rules: rules, own: own}, err
}

// enter connects to every server of the disk once, and leaves in it the addresses that were connected to: QEMU does not
// resolve the names again, so it talks to nobody who was not asked about. Servers that do not answer are left out, unless
// none does. Of the portals of an iSCSI target, QEMU takes one.
func (d door) enter(ctx context.Context, r *backing.Remote) error {
	var open []netdisk.Server
	var last error
	for _, s := range r.Servers {
		at, err := d.dial(ctx, r, s)
		switch {
		case errors.Is(err, reach.ErrRefused):
			return &faulty{launcherapi.DiskRefused, err}
		case err != nil:
			last = err
		default:
			open = append(open, at)
		}
		if len(open) > 0 && netdisk.Of(r.Protocol).OneServer {
			break
		}
	}
	if len(open) == 0 {
		return &faulty{launcherapi.DiskUnreachable, last}
	}
	r.Servers = open
	return nil
}

// dial finds an address of the server that answers.
func (d door) dial(ctx context.Context, r *backing.Remote, s netdisk.Server) (netdisk.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, dialing)
	defer cancel()
	if r.Granted {
		d.rules = nil
	}
	conn, err := d.connect(ctx, reach.Target{Protocol: r.Protocol, Host: s.Host, Port: s.Port, Pool: r.Pool()}, r.Only)
	if err != nil {
		return s, err
	}
	_ = conn.Close()
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return netdisk.Server{Host: at.Addr().Unmap().String(), Port: s.Port}, err
}

// connect connects to the target. All addresses that its name stands for are asked about before the first is connected
// to: a name that leads to a forbidden place as well is not trusted to lead elsewhere the next time. If there are addresses in only, others
// are left out.
func (d door) connect(ctx context.Context, t reach.Target, only []string) (net.Conn, error) {
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.Host)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", t, err)
	}
	for _, a := range addresses {
		if err := d.rules.Check(t, a, d.own); err != nil {
			return nil, err
		}
	}
	last := errors.New("its name stands for no address")
	if len(only) > 0 {
		last = fmt.Errorf("its name stands for other addresses now than %s, where the disk was found before", strings.Join(only, ", "))
	}
	for _, a := range addresses {
		at := net.JoinHostPort(a.Unmap().String(), strconv.Itoa(t.Port))
		if len(only) > 0 && !slices.Contains(only, at) {
			continue
		}
		conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, "tcp", at)
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, fmt.Errorf("connect to %s: %w", t, last)
}

// dialer is the door for an HTTP client: it is asked at every connection, those that redirects lead to among them.
func (d door) dialer(protocol string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("read the address %s: %w", address, err)
		}
		ctx, cancel := context.WithTimeout(ctx, dialing)
		defer cancel()
		return d.connect(ctx, reach.Target{Protocol: protocol, Host: host, Port: number(port)}, nil)
	}
}

// number reads digits that this package has written itself.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
