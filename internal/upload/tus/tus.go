// Package tus parses and writes the headers of the open protocol for resumable uploads, version 1.0 (https://tus.io), for client,
// proxy and worker alike. It moves no bytes and makes no connection.
//
// Berth serves the core protocol and the creation extension, and adds one thing: the body of a PATCH may be in frames
// (package peerproto), which leave out zeroes. Offsets then still count the bytes of the file, not those of the frames, so an
// upload can change between the two, and a client that knows nothing of frames never meets them.
package tus

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-vm/berth/internal/transfer/peerproto"
)

// The protocol's names.
const (
	Version    = "1.0.0"
	Extensions = "creation"
	Path       = "/v1beta1/tus" // uploads are made here and live below

	Resumable = "Tus-Resumable"
	Offset    = "Upload-Offset"
	Length    = "Upload-Length"
	Metadata  = "Upload-Metadata"

	// Plain is the body of a PATCH as the protocol has it, Frames the one without zeroes.
	Plain  = "application/offset+octet-stream"
	Frames = peerproto.FramesType
)

// Keys of Upload-Metadata that are read here.
const (
	// Fingerprint is whatever a client knows a file again by. Two uploads of the same fingerprint and length to the same claim
	// are one: a client that was started again finds the first one's offset.
	Fingerprint = "fingerprint"
	// Format "raw" says that the bytes are the disk, which is then not looked into and whose zeroes cost nothing.
	Format = "format"
	Raw    = "raw"
)

// metadataMax is more than any client sends; a header of it is still small.
const metadataMax = 4096

// A sentence for each way a request can be wrong.
var (
	ErrVersion  = errors.New("this server speaks tus " + Version + ": send " + Resumable + ": " + Version)
	ErrOffset   = errors.New(Offset + " must be a number of bytes")
	ErrLength   = errors.New(Length + " must be a number of bytes; an upload of unknown length is sent with POST or PUT to /v1beta1/upload")
	ErrMetadata = errors.New(Metadata + " must be keys with base64 values, separated by commas")
)

// CheckVersion returns whether a request speaks the version that is spoken here.
func CheckVersion(h http.Header) error {
	if h.Get(Resumable) != Version {
		return ErrVersion
	}
	return nil
}

// ParseOffset reads where a PATCH continues.
func ParseOffset(h http.Header) (int64, error) { return count(h.Get(Offset), ErrOffset) }

// ParseLength reads how large an upload is.
func ParseLength(h http.Header) (int64, error) { return count(h.Get(Length), ErrLength) }

// count reads a number in the one spelling it has: no sign, no leading zero.
func count(s string, wrong error) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, wrong
	}
	return n, nil
}

// ParseMetadata reads what a client says of a file. A key without a value has the empty one.
func ParseMetadata(header string) (map[string]string, error) {
	if len(header) > metadataMax {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are taken", Metadata, len(header), metadataMax)
	}
	found := map[string]string{}
	if strings.TrimSpace(header) == "" {
		return found, nil
	}
	for pair := range strings.SplitSeq(header, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(pair), " ")
		text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		if _, twice := found[key]; err != nil || key == "" || twice || strings.ContainsAny(value, "\r\n") {
			return nil, ErrMetadata
		}
		found[key] = string(text)
	}
	return found, nil
}

// FormatMetadata undoes ParseMetadata, in the order of the keys.
func FormatMetadata(m map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, strings.TrimSuffix(key+" "+base64.StdEncoding.EncodeToString([]byte(m[key])), " "))
	}
	return strings.Join(pairs, ",")
}

// AnswerComplete answers a HEAD or a PATCH of an upload that is complete.
func AnswerComplete(w http.ResponseWriter, r *http.Request, id ID) {
	length := strconv.FormatInt(id.Length, 10)
	h := w.Header()
	h.Set(Resumable, Version)
	h.Set(Offset, length)
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method == http.MethodHead:
		h.Set(Length, length)
		w.WriteHeader(http.StatusOK)
	case r.Header.Get(Offset) == length:
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "the upload is complete", http.StatusConflict)
	}
}
