// Package reach says which servers a machine's network disks may be at. Some are always refused: the author of the address must
// not make the machine's pod connect to itself, to its node's loopback or to link-local addresses (such as the metadata services
// of clouds). An administrator may narrow the rest with rules.
//
// It is pure but for Own: it resolves nothing and opens nothing. Its callers resolve a name first, ask about each of its
// addresses, and connect to an address that was allowed.
package reach

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/berth-vm/berth/internal/netdisk"
)

// Rule allows servers that match all of its fields. An empty field matches every server.
type Rule struct {
	Protocols []string `json:"protocols,omitempty"` // as internal/netdisk names them
	// Hosts are names as a machine writes them, *.example.com for every name below it, addresses, and ranges of addresses.
	Hosts []string `json:"hosts,omitempty"`
	Ports []int    `json:"ports,omitempty"`
	// Pools are pools of Ceph and volumes of Gluster; other protocols have none.
	Pools []string `json:"pools,omitempty"`
}

// Rules are the administrator's. Without one, every server may be reached that is not refused always.
type Rules []Rule

// Target is the address of a disk.
type Target struct {
	Protocol string
	Host     string // as it is written
	Port     int
	Pool     string
}

func (t Target) String() string {
	return fmt.Sprintf("%s server %s", t.Protocol, net.JoinHostPort(t.Host, fmt.Sprint(t.Port)))
}

// Targets are the servers of a network disk as rules see them.
func Targets(a netdisk.Address) []Target {
	var out []Target
	for _, s := range a.Servers {
		out = append(out, Target{Protocol: a.Protocol, Host: s.Host, Port: s.Port, Pool: a.Pool()})
	}
	return out
}

// ErrRefused is wrapped by every refusal.
var ErrRefused = errors.New("refused")

// Check says whether a disk may be at the target when its host stands for this address.
func (r Rules) Check(t Target, address netip.Addr, own []netip.Addr) error {
	address = address.Unmap()
	if why := never(address, own); why != "" {
		return fmt.Errorf("%s is %w: %s %s", t, ErrRefused, address, why)
	}
	if len(r) == 0 || slices.ContainsFunc(r, func(rule Rule) bool { return rule.fits(t, address) }) {
		return nil
	}
	return fmt.Errorf("%s is %w: no rule of the administrator's for network disks allows it (%s)", t, ErrRefused, address)
}

// never is why an address is refused whatever the rules say; empty if it is not.
func never(a netip.Addr, own []netip.Addr) string {
	switch {
	case !a.IsValid() || a.IsUnspecified():
		return "is no address of a server"
	case a.IsLoopback():
		return "is a loopback address, which would be the machine's own pod"
	case a.IsLinkLocalUnicast():
		return "is a link-local address"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is not the address of one server"
	case slices.Contains(own, a):
		return "is the machine's own pod"
	}
	return ""
}

func (r Rule) fits(t Target, a netip.Addr) bool {
	if len(r.Protocols) > 0 && !slices.Contains(r.Protocols, t.Protocol) {
		return false
	}
	if len(r.Ports) > 0 && !slices.Contains(r.Ports, t.Port) {
		return false
	}
	if len(r.Pools) > 0 && !slices.Contains(r.Pools, t.Pool) {
		return false
	}
	return len(r.Hosts) == 0 || slices.ContainsFunc(r.Hosts, func(h string) bool { return host(h, t.Host, a) })
}

func host(allowed, written string, a netip.Addr) bool {
	if p, err := netip.ParsePrefix(allowed); err == nil {
		return p.Contains(a)
	}
	if one, err := netip.ParseAddr(allowed); err == nil {
		return one.Unmap() == a
	}
	name := func(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }
	if below, ok := strings.CutPrefix(allowed, "*"); ok {
		return strings.HasSuffix(name(written), name(below)) && strings.HasPrefix(below, ".")
	}
	return name(allowed) == name(written)
}

// Parse reads rules as an administrator writes them: a JSON list. An empty text has none. A field that is not known is an
// error, because a rule without it would allow more than was meant.
func Parse(text string) (Rules, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var rules Rules
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&rules); err != nil {
		return nil, fmt.Errorf("read the rules for network disks: %w", err)
	}
	for i, r := range rules {
		if err := r.Valid(); err != nil {
			return nil, fmt.Errorf("rule %d for network disks: %w", i+1, err)
		}
	}
	return rules, nil
}

// Valid returns an error about a rule that could match no server, so that a typing error is not mistaken for a refusal.
func (r Rule) Valid() error {
	for _, p := range r.Protocols {
		if known := netdisk.Names(); !slices.Contains(known, p) {
			return fmt.Errorf("protocol %q is none of %s", p, strings.Join(known, ", "))
		}
	}
	for _, h := range r.Hosts {
		if strings.ContainsAny(h, "/ ") {
			if _, err := netip.ParsePrefix(h); err != nil {
				return fmt.Errorf("host %q is neither a name nor an address nor a range such as 10.1.0.0/16", h)
			}
		}
	}
	for _, p := range r.Ports {
		if p < 1 || p > 65535 {
			return fmt.Errorf("port %d is not between 1 and 65535", p)
		}
	}
	return nil
}

// Own are the addresses of the pod this runs in.
func Own() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the pod's own addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}
