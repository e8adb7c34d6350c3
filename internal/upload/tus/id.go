package tus

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ID is the last part of an upload's URL. It has all that a worker must know about the upload after another one died, so that only
// the data has to be stored: how many bytes there are, whether they are the disk itself, and a tag that tells the file from others
// of that length.
type ID struct {
	Length int64
	Raw    bool
	Tag    string
}

// ErrID is an id that this server did not make.
var ErrID = errors.New("no such upload")

// tagSize is enough to tell the files apart that one person sends to one claim.
const tagSize = 16

// NewID names the upload of a file. Without a fingerprint every upload is a new one.
func NewID(length int64, metadata map[string]string) ID {
	tag := rand.Text()[:tagSize]
	if file := metadata[Fingerprint]; file != "" {
		sum := sha256.Sum256([]byte(file))
		tag = hex.EncodeToString(sum[:tagSize/2])
	}
	return ID{Length: length, Raw: metadata[Format] == Raw, Tag: strings.ToLower(tag)}
}

// String returns the id as it stands in a URL.
func (id ID) String() string {
	kind := "image"
	if id.Raw {
		kind = Raw
	}
	return fmt.Sprintf("%d-%s-%s", id.Length, kind, id.Tag)
}

// ParseID reads an id, in the one spelling String gives it.
func ParseID(s string) (ID, error) {
	length, rest, _ := strings.Cut(s, "-")
	kind, tag, _ := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(length, 10, 64)
	id := ID{Length: n, Raw: kind == Raw, Tag: tag}
	if err != nil || n < 0 || len(tag) != tagSize || strings.Trim(tag, "0123456789abcdefghijklmnopqrstuvwxyz") != "" || id.String() != s {
		return ID{}, ErrID
	}
	return id, nil
}
