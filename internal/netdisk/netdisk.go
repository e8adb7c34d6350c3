// Package netdisk knows the protocols of network disks: disks at a server that a machine's own QEMU opens. There is one row for each
// protocol, in protocols.go: its default port, what is needed to open a disk, what identifies it, which Secrets it refers to, how it
// is logged in to, and how QEMU describes it. Everything else about protocols is a look-up of that table.
//
// It is pure: it resolves no name, opens no connection and reads nothing from the cluster.
package netdisk

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Protocol describes one protocol. Functions that are not set return nothing.
type Protocol struct {
	// Name is the protocol in a machine's volumes, in the administrator's rules, and as libvirt and QEMU call it.
	Name string
	// Port is the default port of a server.
	Port int
	// Pooled: the first part of a disk's name is a pool, which rules can name.
	Pooled bool
	// OneServer: QEMU takes one of a disk's servers.
	OneServer bool
	// TLS: the connection can be encrypted, and libvirt wants to know whether it is.
	TLS bool
	// Reconnects: QEMU has to be told how long to wait for a server that has gone; clients of other protocols wait by themselves.
	Reconnects bool
	// OwnReader: the launcher reads the disk itself and serves it to QEMU on a socket.
	OwnReader bool
	// OneClient: a server may serve an export once, so the export is asked about and not opened before the guest has it.
	OneClient bool
	// SecretType is libvirt's name for a secret of the protocol.
	SecretType string
	// Advice says what to check if reads and writes do not return.
	Advice string
	// Keys are the keys of a Secret that its login can have.
	Keys []string

	address func(s *kubevirt.NetworkSource, c Client) (Address, error)
	// key identifies the disk. servers are the addresses that the disk was opened at; none if they are not known.
	key   func(s *kubevirt.NetworkSource, servers []string) ([]string, error)
	refs  func(s *kubevirt.NetworkSource) []Ref
	login func(s *kubevirt.NetworkSource, read func(key string) (string, error)) (*Login, error)
	// setLogin has the disk take its login from a Secret.
	setLogin func(s *kubevirt.NetworkSource, ref *corev1.LocalObjectReference)
	// certificates is the Secret with the certificates of its connection; "" without encryption.
	certificates func(s *kubevirt.NetworkSource) string
	// node is the disk in QEMU's words. secret and tls are the names of objects that QEMU knows.
	node func(a Address, secret, tls string) map[string]any
}

// Names returns the protocols' names.
func Names() []string {
	var out []string
	for _, p := range protocols {
		out = append(out, p.Name)
	}
	return out
}

// Of returns the protocol of that name, the zero value if there is none.
func Of(name string) Protocol {
	if at := slices.IndexFunc(protocols, func(p Protocol) bool { return p.Name == name }); at >= 0 {
		return protocols[at]
	}
	return Protocol{}
}

func of(s *kubevirt.NetworkSource) Protocol { return Of(s.Protocol()) }

// Client is the machine that opens a disk.
type Client struct {
	Namespace, Name string
	// Portals are more addresses of the same disk than its source has room for.
	Portals []kubevirt.NetworkHost
}

// Server is the address of a disk's server.
type Server struct {
	Host string
	Port int
}

func (s Server) String() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

func serverOf(h kubevirt.NetworkHost, protocol int) Server {
	return Server{strings.Trim(h.Name, "[]"), h.PortOr(protocol)}
}

// parseServer reads an address with or without a port. An address of IPv6 may be in brackets.
func parseServer(text string, protocol int) (Server, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return Server{strings.Trim(text, "[]"), protocol}, nil //nolint:nilerr // it has no port
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return Server{}, errors.New(text + " has no port that is a number from 1 to 65535")
	}
	return Server{host, n}, nil
}

// Address holds what a client needs to open a disk, except its login.
type Address struct {
	Protocol  string
	Name      string // of the disk, in the protocol's own words
	Servers   []Server
	Socket    string // instead of servers: a socket of this pod that speaks the protocol
	User      string // who logs in; "": there is no login
	Initiator string
	Snapshot  string
	TLS       bool
	TLSName   string // the name in the server's certificate
}

// ErrNone is the answer for a volume that is no network disk.
var ErrNone = errors.New("it is no network disk")

// Open returns the address of a volume's disk for a client.
func Open(s kubevirt.NetworkSource, c Client) (Address, error) {
	p := of(&s)
	if p.address == nil {
		return Address{}, ErrNone
	}
	a, err := p.address(&s, c)
	a.Protocol = p.Name
	return a, err
}

// OnSocket is the address of a disk that a program of the launcher's pod serves to QEMU.
func OnSocket(path string) Address { return Address{Protocol: socketProtocol, Socket: path} }

// Pool is the pool that the disk is in, "" if the protocol has none.
func (a Address) Pool() string {
	if !Of(a.Protocol).Pooled {
		return ""
	}
	pool, _, _ := strings.Cut(a.Name, "/")
	return pool
}

// Node is the disk as QEMU's own programs and monitor have it. secret and tls are the names of objects that they know.
func (a Address) Node(secret, tls string) map[string]any {
	n := map[string]any{"driver": a.Protocol}
	set(n, "user", a.User)
	if node := Of(a.Protocol).node; node != nil {
		maps.Copy(n, node(a, secret, tls))
	}
	return n
}

func set(n map[string]any, key, value string) {
	if value != "" {
		n[key] = value
	}
}

// Key identifies the disk: two sources with the same key are the same disk, however they are spelled. servers are the addresses
// that the disk was opened at; none if they are not known.
func Key(s kubevirt.NetworkSource, servers []string) (protocol string, parts []string, err error) {
	p := of(&s)
	if p.key == nil {
		return "", nil, ErrNone
	}
	parts, err = p.key(&s, servers)
	return p.Name, parts, err
}

// Directories under the directory of a volume where what it refers to is mounted.
const (
	CredentialsDir = "credentials"
	HeadersDir     = "headers" // with one directory a Secret
	CADir          = "ca"
)

// Ref is a Secret or a ConfigMap that a disk refers to, and the directory that it is mounted in.
type Ref struct {
	Dir               string
	Secret, ConfigMap string // one of them is set
}

// Refs lists the objects that a disk refers to in the machine's own namespace.
func Refs(s kubevirt.NetworkSource) []Ref {
	p := of(&s)
	if p.refs == nil {
		return nil
	}
	return slices.DeleteFunc(p.refs(&s), func(r Ref) bool { return r.Secret == "" && r.ConfigMap == "" })
}

func credentials(ref *corev1.LocalObjectReference) []Ref {
	if ref == nil {
		return nil
	}
	return []Ref{{Dir: CredentialsDir, Secret: ref.Name}}
}

// Login is the login that a disk's server requires.
type Login struct {
	User  string
	Value []byte
}

// UnsupportedError says why QEMU's client cannot log in as a Secret asks for.
type UnsupportedError string

func (e UnsupportedError) Error() string { return string(e) }

// ReadLogin reads the login of a disk from its Secret, whose keys read returns; nil if it needs none. A missing key is fs.ErrNotExist.
func ReadLogin(s kubevirt.NetworkSource, read func(key string) (string, error)) (*Login, error) {
	if p := of(&s); p.login != nil {
		return p.login(&s, read)
	}
	return nil, nil
}

// SetLogin has the disk take its login from a Secret of the machine's namespace.
func SetLogin(s *kubevirt.NetworkSource, secret string) {
	if p := of(s); p.setLogin != nil {
		p.setLogin(s, &corev1.LocalObjectReference{Name: secret})
	}
}

// Certificates is the Secret with the certificates of the disk's connection; "" if it is not encrypted, or needs none of its own.
func Certificates(s kubevirt.NetworkSource) string {
	if p := of(&s); p.certificates != nil {
		return p.certificates(&s)
	}
	return ""
}
