// Package checksum compares the bytes of a source with the digest that was asked for, and keeps the state of a digest that is not
// complete, so that a later run continues it.
//
// It does not know where the bytes come from.
package checksum

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

// Sum is the expected digest of the source's bytes, and the running one.
type Sum struct {
	hash.Hash
	algorithm string
	want      []byte
}

var algorithms = map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}

// Parse reads "algorithm:hex"; nil if none is asked for.
func Parse(s string) (*Sum, error) {
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
	return &Sum{Hash: make(), algorithm: name, want: want}, nil
}

// Fresh returns c as it was before the first byte.
func (c *Sum) Fresh() *Sum {
	return &Sum{Hash: algorithms[c.algorithm](), algorithm: c.algorithm, want: c.want}
}

// Digest returns the running digest, spelled as the expected one.
func (c *Sum) Digest() string { return c.algorithm + ":" + hex.EncodeToString(c.Sum(nil)) }

// Check compares the sums when all bytes were read; clients look for the words "checksum mismatch".
func (c *Sum) Check(name string) error {
	if bytes.Equal(c.Sum(nil), c.want) {
		return nil
	}
	return task.Errorf(task.ChecksumMismatch, "checksum mismatch: %s is %s, expected %s:%x; correct the checksum or the source", name, c.Digest(), c.algorithm, c.want)
}

// Save returns the state of the running digest.
func (c *Sum) Save() ([]byte, error) { return c.Hash.(encoding.BinaryMarshaler).MarshalBinary() }

// Restore continues from a state that Save returned, in this process or in an earlier one.
func (c *Sum) Restore(state []byte) error {
	return c.Hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
}
