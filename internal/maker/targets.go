package maker

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/reach"
)

// targets are the servers of a source as rules see them; a claim has none.
func targets(s *kubevirt.MadeSource) []reach.Target {
	switch {
	case s.ISCSI != nil:
		return []reach.Target{{Protocol: "iscsi", Host: s.ISCSI.Host.Name, Port: s.ISCSI.Host.PortOr(3260)}}
	case s.NBD != nil:
		return []reach.Target{{Protocol: "nbd", Host: s.NBD.Host.Name, Port: s.NBD.Host.PortOr(10809)}}
	case s.Gluster != nil:
		var out []reach.Target
		for _, h := range s.Gluster.Hosts {
			out = append(out, reach.Target{Protocol: "gluster", Host: h.Name, Port: h.PortOr(24007), Pool: s.Gluster.Volume})
		}
		return out
	case s.RBD != nil:
		var out []reach.Target
		for _, m := range s.RBD.Monitors {
			t := reach.Target{Protocol: "rbd", Host: m, Port: 6789, Pool: s.RBD.Pool}
			if host, port, err := net.SplitHostPort(m); err == nil {
				t.Host, t.Port = host, number(port)
			}
			out = append(out, t)
		}
		return out
	case s.HTTP != nil:
		return web(s.HTTP.URL)
	}
	return nil
}

func web(address string) []reach.Target {
	u, err := url.Parse(address)
	if err != nil {
		return nil // no user's machine with it is accepted
	}
	t := reach.Target{Protocol: "http", Host: u.Hostname(), Port: 80}
	if strings.EqualFold(u.Scheme, "https") {
		t.Port = 443
	}
	if p := u.Port(); p != "" {
		t.Port = number(p)
	}
	return []reach.Target{t}
}

func number(port string) int {
	n, _ := strconv.Atoi(port)
	return n
}
