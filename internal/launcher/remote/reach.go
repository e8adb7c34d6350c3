package remote

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

// dialTimeout is how long a server may take to accept a connection before it counts as unreachable.
const dialTimeout = 10 * time.Second

// Error is an error about a disk's server for which a machine has a reason of its own.
type Error struct {
	Fault launcherapi.Fault
	Err   error
}

func (f *Error) Error() string { return f.Err.Error() }
func (f *Error) Unwrap() error { return f.Err }

// connector connects to the servers that the pod's network disks may use, and to no others.
type connector struct {
	rules reach.Rules
	own   []netip.Addr // the pod's own addresses
}

func newConnector(rules reach.Rules) (connector, error) {
	own, err := reach.Own()
	return connector{rules: rules, own: own}, err
}

// enter connects once to every server of the disk and replaces the disk's servers by the addresses that accepted: QEMU does not resolve the
// names again, so it connects only to addresses that were checked. Servers that do not answer are left out; it is an error if none does. For a
// protocol whose disks QEMU opens at one server, the first that answers is enough.
func (d connector) enter(ctx context.Context, r *backing.Remote) error {
	var open []netdisk.Server
	var last error
	for _, s := range r.Servers {
		at, err := d.dial(ctx, r, s)
		switch {
		case errors.Is(err, reach.ErrRefused):
			return &Error{launcherapi.DiskRefused, err}
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
		return &Error{launcherapi.DiskUnreachable, last}
	}
	r.Servers = open
	return nil
}

// dial returns an address of the server that accepts a connection.
func (d connector) dial(ctx context.Context, r *backing.Remote, s netdisk.Server) (netdisk.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
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

// connect connects to the target. All addresses that its name resolves to are checked before the first is connected to: a name that also
// resolves to a forbidden address could resolve to that alone the next time. If only is not empty, other addresses are left out.
func (d connector) connect(ctx context.Context, t reach.Target, only []string) (net.Conn, error) {
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

// dialer returns a dial function for an HTTP client, which checks every connection, also those that redirects lead to.
func (d connector) dialer(protocol string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("read the address %s: %w", address, err)
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return d.connect(ctx, reach.Target{Protocol: protocol, Host: host, Port: number(port)}, nil)
	}
}

// number converts a port that net.SplitHostPort has split off; 0 if it is no number.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
