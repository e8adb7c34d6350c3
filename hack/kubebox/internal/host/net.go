package host

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

// The network: a bridge in the control machine's namespace joins the control machine, every node (a veth pair each) and the
// machine itself (another pair, whose end there is plan.HostLink). The control machine routes between the nodes' pods.
const (
	bridge   = "br0"
	hostPort = "host"
	nodeLink = "eth0"
)

// NetworkFree returns whether the cluster's addresses are unused on this machine; a link that an earlier cluster left does not
// count.
func NetworkFree() error {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	ours, _ := netlink.LinkByName(plan.HostLink)
	for _, r := range routes {
		if r.Dst == nil || ones(r.Dst) == 0 || ours != nil && r.LinkIndex == ours.Attrs().Index {
			continue
		}
		for _, cidr := range []string{plan.NodeCIDR, plan.PodCIDR, plan.ServiceCIDR} {
			if overlaps(r.Dst, cidr) {
				return fmt.Errorf("the cluster's addresses %s are in use: %s is routed through %s; remove that route or network first",
					cidr, r.Dst, linkName(r.LinkIndex))
			}
		}
	}
	return nil
}

func ones(n *net.IPNet) int { size, _ := n.Mask.Size(); return size }

func overlaps(a *net.IPNet, cidr string) bool {
	_, b, err := net.ParseCIDR(cidr)
	return err == nil && (a.Contains(b.IP) || b.Contains(a.IP))
}

func linkName(index int) string {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("link %d", index)
	}
	return link.Attrs().Name
}

// Unplug removes the machine's own end of the cluster network, and with it the routes through it.
func Unplug() error {
	link, err := netlink.LinkByName(plan.HostLink)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", plan.HostLink, err)
	}
	return nil
}

// WireControl makes the bridge in the control machine's namespace and joins this machine to it.
func WireControl(pid int) error {
	inside, err := namespaceOf(pid)
	if err != nil {
		return err
	}
	defer inside.Close()
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
	if err := inside.LinkAdd(br); err != nil {
		return fmt.Errorf("make bridge: %w", err)
	}
	if err := setUp(inside, bridge, plan.ControlIP+"/24"); err != nil {
		return err
	}
	if err := setUp(inside, "lo", ""); err != nil {
		return err
	}
	here, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer here.Close()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: plan.HostLink}, PeerName: hostPort, PeerNamespace: netlink.NsPid(pid)}
	if err := here.LinkAdd(pair); err != nil {
		return fmt.Errorf("make %s: %w", plan.HostLink, err)
	}
	if err := plug(inside, hostPort); err != nil {
		return err
	}
	if err := setUp(here, plan.HostLink, plan.HostIP+"/24"); err != nil {
		return err
	}
	for _, cidr := range []string{plan.PodCIDR, plan.ServiceCIDR} {
		if err := addRoute(here, cidr, plan.ControlIP); err != nil {
			return err
		}
	}
	return nil
}

// WireNode joins a node's namespace to the bridge and routes its pods' addresses to it.
func WireNode(control, pid int, n plan.Node) error {
	hub, err := namespaceOf(control)
	if err != nil {
		return err
	}
	defer hub.Close()
	inside, err := namespaceOf(pid)
	if err != nil {
		return err
	}
	defer inside.Close()
	// The port of a node that died goes with its namespace, which the kernel takes down in its own time.
	if old, err := hub.LinkByName(n.Port()); err == nil {
		if err := hub.LinkDel(old); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove old port of %s: %w", n.Name, err)
		}
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: n.Port()}, PeerName: nodeLink, PeerNamespace: netlink.NsPid(pid)}
	if err := hub.LinkAdd(pair); err != nil {
		return fmt.Errorf("make port of %s: %w", n.Name, err)
	}
	if err := plug(hub, n.Port()); err != nil {
		return err
	}
	if err := setUp(inside, "lo", ""); err != nil {
		return err
	}
	if err := setUp(inside, nodeLink, n.IP()+"/24"); err != nil {
		return err
	}
	if err := addRoute(inside, "0.0.0.0/0", plan.ControlIP); err != nil {
		return err
	}
	return addRoute(hub, n.PodCIDR(), n.IP())
}

// SetPort pulls the node's plug, or puts it back.
func SetPort(control int, n plan.Node, connected bool) error {
	hub, err := namespaceOf(control)
	if err != nil {
		return err
	}
	defer hub.Close()
	port, err := hub.LinkByName(n.Port())
	if err != nil {
		return fmt.Errorf("find port of %s: %w", n.Name, err)
	}
	if connected {
		err = hub.LinkSetUp(port)
	} else {
		err = hub.LinkSetDown(port)
	}
	if err != nil {
		return fmt.Errorf("switch port of %s: %w", n.Name, err)
	}
	return nil
}

func namespaceOf(pid int) (*netlink.Handle, error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("open network of process %d: %w", pid, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, fmt.Errorf("enter network of process %d: %w", pid, err)
	}
	return h, nil
}

func plug(h *netlink.Handle, name string) error {
	port, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	br, err := h.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}
	if err := h.LinkSetMaster(port, br); err != nil {
		return fmt.Errorf("plug %s into bridge: %w", name, err)
	}
	return setUp(h, name, "")
}

func setUp(h *netlink.Handle, name, cidr string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if cidr != "" {
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			return fmt.Errorf("parse address: %w", err)
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("give %s to %s: %w", cidr, name, err)
		}
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func addRoute(h *netlink.Handle, cidr, via string) error {
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return fmt.Errorf("parse route: %w", err)
	}
	if err := h.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("route %s via %s: %w", cidr, via, err)
	}
	return nil
}
