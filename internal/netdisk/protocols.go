package netdisk

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// The ports that servers have without one.
const (
	portISCSI   = 3260
	portRBD     = 6789
	portNBD     = 10809
	portGluster = 24007
	portHTTP    = 80
	portHTTPS   = 443
)

// protocols has a row for each field of kubevirt.NetworkSource.
var protocols = []Protocol{
	{
		Name: "iscsi", Port: portISCSI, OneServer: true, SecretType: "iscsi", Advice: advice,
		Keys:    []string{CHAPUser, CHAPPassword, CHAPUserBack, CHAPPasswordBack},
		address: iscsiAddress, key: iscsiKey, node: iscsiNode, login: chap,
		refs:     func(s *kubevirt.NetworkSource) []Ref { return credentials(s.ISCSI.SecretRef) },
		setLogin: func(s *kubevirt.NetworkSource, ref *corev1.LocalObjectReference) { s.ISCSI.SecretRef = ref },
	},
	{
		Name: "rbd", Port: portRBD, Pooled: true, SecretType: "ceph",
		Advice:  "Ceph waits while a pool or the cluster is full, or a placement group is not active: see ceph health detail",
		Keys:    []string{CephKey, CephUserKey, CephUser},
		address: rbdAddress, key: rbdKey, node: rbdNode, login: cephLogin,
		refs:     func(s *kubevirt.NetworkSource) []Ref { return credentials(s.RBD.SecretRef) },
		setLogin: func(s *kubevirt.NetworkSource, ref *corev1.LocalObjectReference) { s.RBD.SecretRef = ref },
	},
	{
		Name: "nbd", Port: portNBD, TLS: true, Reconnects: true, OneClient: true, SecretType: "nbd", Advice: advice,
		address: nbdAddress, key: nbdKey, node: nbdNode, certificates: nbdCertificates,
		refs: func(s *kubevirt.NetworkSource) []Ref {
			return []Ref{{Dir: CredentialsDir, Secret: nbdCertificates(s)}}
		},
	},
	{
		Name: "gluster", Port: portGluster, Pooled: true, SecretType: "gluster", Advice: advice,
		address: glusterAddress, key: glusterKey, node: glusterNode,
	},
	{
		// QEMU's own driver for URLs hangs with two reads in flight against some servers, supports no password and cannot be told which
		// server to connect to.
		Name: "http", Port: portHTTP, OwnReader: true, Advice: advice,
		address: httpAddress, key: httpKey, refs: httpRefs,
	},
}

const advice = "see to the storage behind it; a stream waits like this while its registry does not answer, and says so in its log"

// The keys of Secrets with logins, as Kubernetes and ceph-csi name them.
//
//nolint:gosec // names of keys, not credentials
const (
	CHAPUser         = "node.session.auth.username"
	CHAPPassword     = "node.session.auth.password"
	CHAPUserBack     = "node.session.auth.username_in" // what the target proves itself with: mutual CHAP
	CHAPPasswordBack = "node.session.auth.password_in"
	CephKey          = "key"
	CephUserKey      = "userKey"
	CephUser         = "userID"
)

// socketProtocol is the protocol in which programs of Berth serve disks to QEMU.
const socketProtocol = "nbd"

// Reconnect is for how many seconds a guest waits for a server that has gone before its reads and writes fail, which pauses it.
const Reconnect = 10

func iscsiAddress(n *kubevirt.NetworkSource, c Client) (Address, error) {
	s := n.ISCSI
	a := Address{Name: fmt.Sprintf("%s/%d", s.Portal, s.LUN), Servers: []Server{serverOf(s.Host, portISCSI)}, Initiator: s.Initiator}
	if a.Initiator == "" {
		a.Initiator = "iqn.2026-01.dev.berth:" + c.Namespace + "." + c.Name
	}
	for _, p := range c.Portals {
		a.Servers = append(a.Servers, serverOf(p, portISCSI))
	}
	return a, nil
}

// iscsiKey: target names are unique in the world, so the portal does not count; they know no upper case.
func iscsiKey(n *kubevirt.NetworkSource, _ []string) ([]string, error) {
	return []string{strings.ToLower(n.ISCSI.Portal), strconv.Itoa(int(n.ISCSI.LUN))}, nil
}

func iscsiNode(a Address, secret, _ string) map[string]any {
	target, lun, _ := strings.Cut(a.Name, "/")
	n := map[string]any{"transport": "tcp", "target": target, "portal": a.Servers[0].String()}
	n["lun"], _ = strconv.Atoi(lun)
	set(n, "initiator-name", a.Initiator)
	set(n, "password-secret", secret)
	return n
}

func chap(n *kubevirt.NetworkSource, read func(string) (string, error)) (*Login, error) {
	if n.ISCSI.SecretRef == nil {
		return nil, nil
	}
	secret := n.ISCSI.SecretRef.Name
	for _, key := range []string{CHAPUserBack, CHAPPasswordBack} {
		if _, err := read(key); err == nil {
			return nil, UnsupportedError(fmt.Sprintf("Secret %s has %s, which asks for mutual CHAP, and QEMU's iSCSI client cannot check its target: "+
				"take the keys that end in _in out of the Secret and let the target do without, or mount the volume", secret, key))
		}
	}
	user, err := read(CHAPUser)
	if err != nil {
		return nil, missingKey(secret, err, CHAPUser, CHAPPassword)
	}
	password, err := read(CHAPPassword)
	if err != nil {
		return nil, missingKey(secret, err, CHAPUser, CHAPPassword)
	}
	return &Login{user, []byte(password)}, nil
}

func missingKey(secret string, err error, keys ...string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("Secret %s has no %s and %s, which the disk's server wants: %w", secret, keys[0], keys[1], fs.ErrNotExist) //nolint:staticcheck // a kind's name is written with a capital
	}
	return err
}

// DefaultPool is the pool that clients of RBD take if none is named.
const DefaultPool = "rbd"

func rbdAddress(n *kubevirt.NetworkSource, _ Client) (Address, error) {
	s := n.RBD
	a := Address{Name: s.Pool + "/" + s.Image, Snapshot: s.Snapshot}
	if s.Namespace != "" {
		a.Name = s.Pool + "/" + s.Namespace + "/" + s.Image
	}
	for _, m := range s.Monitors {
		at, err := parseServer(m, portRBD)
		if err != nil {
			return Address{}, fmt.Errorf("monitor %w", err)
		}
		a.Servers = append(a.Servers, at)
	}
	return a, nil
}

// rbdKey: monitors do not count, since one cluster has many and their addresses change. The snapshots of an image are the image: a reader of one
// is in the way of a writer only if its access mode says so.
func rbdKey(n *kubevirt.NetworkSource, _ []string) ([]string, error) {
	pool := n.RBD.Pool
	if pool == "" {
		pool = DefaultPool
	}
	return []string{pool, n.RBD.Namespace, n.RBD.Image}, nil
}

func rbdNode(a Address, secret, _ string) map[string]any {
	parts := strings.Split(a.Name, "/")
	n := map[string]any{"pool": parts[0], "image": parts[len(parts)-1]}
	if len(parts) == 3 {
		n["namespace"] = parts[1]
	}
	set(n, "snapshot", a.Snapshot)
	set(n, "key-secret", secret)
	var servers []map[string]any
	for _, s := range a.Servers {
		servers = append(servers, map[string]any{"host": s.Host, "port": strconv.Itoa(s.Port)})
	}
	n["server"] = servers
	return n
}

func cephLogin(n *kubevirt.NetworkSource, read func(string) (string, error)) (*Login, error) {
	if n.RBD.SecretRef == nil {
		return nil, nil
	}
	secret, name := n.RBD.SecretRef.Name, CephKey
	text, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		name = CephUserKey
		text, err = read(name)
	}
	if err != nil {
		return nil, missingKey(secret, err, CephKey, CephUserKey)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil { // not its words: they may quote the key
		return nil, fmt.Errorf("%s of Secret %s is no key of Ceph's: it must be the base64 text that ceph auth get-key prints", name, secret)
	}
	user := n.RBD.User
	if user == "" {
		if user, err = read(CephUser); err != nil { // Secrets of ceph-csi name the user too
			user = "admin"
		}
	}
	return &Login{user, key}, nil
}

func nbdAddress(n *kubevirt.NetworkSource, _ Client) (Address, error) {
	s := n.NBD
	a := Address{Name: s.Export, Servers: []Server{serverOf(s.Host, portNBD)}}
	if t := s.TLS; t != nil {
		a.TLS, a.TLSName = true, t.Hostname
		if a.TLSName == "" {
			a.TLSName = s.Host.Name
		}
	}
	return a, nil
}

// nbdKey: a server has many names, and one of them is the disk's for another machine, so the address where it was found counts if it is known.
func nbdKey(n *kubevirt.NetworkSource, servers []string) ([]string, error) {
	at := serverOf(n.NBD.Host, portNBD)
	if len(servers) == 1 {
		if found, err := netip.ParseAddrPort(servers[0]); err == nil {
			at = Server{found.Addr().String(), int(found.Port())}
		}
	}
	return []string{keyServer(at), n.NBD.Export}, nil
}

// keyServer spells a server in one way.
func keyServer(s Server) string {
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(s.Host), "."), strconv.Itoa(s.Port))
}

func nbdCertificates(n *kubevirt.NetworkSource) string {
	if n.NBD.TLS == nil {
		return ""
	}
	return n.NBD.TLS.SecretRef.Name
}

func nbdNode(a Address, _, tls string) map[string]any {
	n := map[string]any{"reconnect-delay": Reconnect}
	set(n, "export", a.Name)
	set(n, "tls-creds", tls)
	set(n, "tls-hostname", a.TLSName)
	if a.Socket != "" {
		n["server"] = map[string]any{"type": "unix", "path": a.Socket}
	} else {
		n["server"] = inet(a.Servers[0])
	}
	return n
}

func inet(s Server) map[string]any {
	return map[string]any{"type": "inet", "host": s.Host, "port": strconv.Itoa(s.Port)}
}

func glusterAddress(n *kubevirt.NetworkSource, _ Client) (Address, error) {
	s := n.Gluster
	a := Address{Name: s.Volume + "/" + strings.TrimLeft(s.Path, "/")}
	for _, h := range s.Hosts {
		a.Servers = append(a.Servers, serverOf(h, portGluster))
	}
	return a, nil
}

// glusterKey: any server leads to the volume, so none counts.
func glusterKey(n *kubevirt.NetworkSource, _ []string) ([]string, error) {
	return []string{n.Gluster.Volume, path.Clean("/" + n.Gluster.Path)}, nil
}

func glusterNode(a Address, _, _ string) map[string]any {
	volume, file, _ := strings.Cut(a.Name, "/")
	var servers []map[string]any
	for _, s := range a.Servers {
		servers = append(servers, inet(s))
	}
	return map[string]any{"volume": volume, "path": file, "server": servers}
}

func httpAddress(n *kubevirt.NetworkSource, _ Client) (Address, error) {
	u, at, err := parseURL(n.HTTP.URL)
	if err != nil {
		return Address{}, err
	}
	return Address{Name: u.Path, Servers: []Server{at}}, nil
}

// parseURL reads the address of a web server. Its port is the scheme's if it is not said.
func parseURL(text string) (*url.URL, Server, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, Server{}, fmt.Errorf("read the address of a disk: %w", err)
	}
	at := Server{u.Hostname(), portHTTP}
	if u.Scheme == "https" {
		at.Port = portHTTPS
	}
	if p := u.Port(); p != "" {
		if at.Port, err = strconv.Atoi(p); err != nil {
			return nil, Server{}, fmt.Errorf("read the address of a disk: port %q is not a number", p)
		}
	}
	return u, at, nil
}

// httpKey: user, password, query and fragment do not count, since they are credentials more often than they are names.
func httpKey(n *kubevirt.NetworkSource, _ []string) ([]string, error) {
	u, at, err := parseURL(n.HTTP.URL)
	if err != nil {
		return nil, err
	}
	return []string{keyServer(at), path.Clean("/" + u.Path)}, nil
}

func httpRefs(n *kubevirt.NetworkSource) []Ref {
	out := credentials(n.HTTP.SecretRef)
	for i, s := range n.HTTP.SecretHeaders {
		out = append(out, Ref{Dir: path.Join(HeadersDir, strconv.Itoa(i)), Secret: s.Name})
	}
	return append(out, Ref{Dir: CADir, ConfigMap: n.HTTP.CertConfigMap})
}
