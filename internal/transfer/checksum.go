package transfer

import (
	"bytes"
	"crypto/md5"  //nolint:gosec // what publishers give is compared, nothing is protected
	"crypto/sha1" //nolint:gosec // as above
	"crypto/sha256"
	"crypto/sha512"
	"encoding"
	"encoding/hex"
	"hash"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// checksum is the expected digest of the source's bytes, and the running one.
type checksum struct {
	hash.Hash
	algorithm string
	want      []byte
}

var algorithms = map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}

// parseChecksum reads "algorithm:hex"; nil if none is asked for.
func parseChecksum(s string) (*checksum, error) {
	if s == "" {
		return nil, nil
	}
	name, digits, _ := strings.Cut(s, ":")
	name = strings.ToLower(name)
	make, known := algorithms[name]
	want, err := hex.DecodeString(strings.TrimSpace(digits))
	if !known || err != nil || len(want) != make().Size() {
		return nil, task.Errorf(task.BadTask, "checksum %q is not md5, sha1, sha256 or sha512, a colon and as many hexadecimal digits as that has", s)
	}
	return &checksum{Hash: make(), algorithm: name, want: want}, nil
}

// fresh is c before the first byte.
func (c *checksum) fresh() *checksum {
	return &checksum{Hash: algorithms[c.algorithm](), algorithm: c.algorithm, want: c.want}
}

func (c *checksum) digest() string { return c.algorithm + ":" + hex.EncodeToString(c.Sum(nil)) }

// check compares the sums; clients look for the words "checksum mismatch".
func (c *checksum) check(name string) error {
	if bytes.Equal(c.Sum(nil), c.want) {
		return nil
	}
	return task.Errorf(task.ChecksumMismatch, "checksum mismatch: %s is %s, expected %s:%x; correct the checksum or the source", name, c.digest(), c.algorithm, c.want)
}

func (c *checksum) save() ([]byte, error) { return c.Hash.(encoding.BinaryMarshaler).MarshalBinary() }

func (c *checksum) restore(state []byte) error {
	return c.Hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
}
