package localdisk

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kind is the kind of object that an ID stands for.
type kind string

const (
	kindVolume   kind = "vol"
	kindSnapshot kind = "snap"
)

// keyLength is the length of a key: 128 bits in hexadecimal.
const keyLength = 32

// maxName is the longest name the CSI specification asks for, in bytes.
const maxName = 128

// id is the handle of a volume or snapshot: what it is, where it is, and under which key. A key follows from the name that the
// caller chose, so that a call that is repeated after a crash finds what the first one made; the node is part of it because a
// driver that gets a handle of another node must be able to name that node. The pool is, because a node's disk may be exchanged:
// what is not in the new pool may still be in the old one.
type id struct {
	kind kind
	key  string
	pool string // empty in handles of drivers that gave pools no ID
	node string
}

var idPattern = regexp.MustCompile(`^(vol|snap)-([0-9a-f]{32})(?:-([0-9a-f]{16}))?\.([a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?)$`)

// nodePattern is a label's value that is also a node's name: 63 characters, for the topology label carries it.
var nodePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

func newID(k kind, name, node string) id {
	sum := sha256.Sum256([]byte(name))
	return id{kind: k, key: hex.EncodeToString(sum[:])[:keyLength], node: node}
}

func (i id) String() string {
	if i.pool == "" {
		return i.name() + "." + i.node
	}
	return i.name() + "-" + i.pool + "." + i.node
}

// name returns what a handle names in a pool. Locks have it: a volume of an upgraded pool is asked for with and without the pool.
func (i id) name() string { return string(i.kind) + "-" + i.key }

// nameOf returns the name of a handle, or all of one that cannot be read.
func nameOf(handle string) string {
	if m := idPattern.FindStringSubmatch(handle); m != nil {
		return m[1] + "-" + m[2]
	}
	return handle
}

// parseID reads a handle. One that this driver can never have given out is not there; one that smells of a path is refused.
func parseID(k kind, s string) (id, error) {
	if s == "" {
		return id{}, status.Errorf(codes.InvalidArgument, "no %s id is given", k.noun())
	}
	if badName(s) {
		return id{}, status.Errorf(codes.InvalidArgument, "%s id %q has characters of a path in it", k.noun(), s)
	}
	m := idPattern.FindStringSubmatch(s)
	if m == nil || m[1] != string(k) {
		return id{}, status.Errorf(codes.NotFound, "%s %q does not exist", k.noun(), s)
	}
	return id{kind: k, key: m[2], pool: m[3], node: m[4]}, nil
}

// checkName refuses names that should not appear in a path or a log, though a key would make them harmless.
func checkName(k kind, name string) error {
	switch {
	case name == "":
		return status.Errorf(codes.InvalidArgument, "no %s name is given", k.noun())
	case len(name) > maxName:
		return status.Errorf(codes.InvalidArgument, "%s name is %d bytes long, at most %d are allowed", k.noun(), len(name), maxName)
	case badName(name):
		return status.Errorf(codes.InvalidArgument,
			"%s name %q has a slash, a backslash, a control character or '..' in it; use letters, digits, '-', '_' and '.'", k.noun(), name)
	}
	return nil
}

func badName(s string) bool {
	return strings.Contains(s, "..") || strings.ContainsAny(s, `/\`) || strings.ContainsFunc(s, unicode.IsControl)
}

func (k kind) noun() string {
	if k == kindSnapshot {
		return "snapshot"
	}
	return "volume"
}
