// Package token makes and checks proofs that somebody was allowed to do something, for those who act later and without
// that somebody.
//
// A clone token says that a volume may be cloned out of another namespace. The right is checked once, at admission; the
// proof travels in an annotation of the object itself and holds for as long as that lives. It is authenticated with a key
// only the controller has, so a user can read it, copy it or remove it, but not make one that fits another source or
// another target.
//
// An upload token says that data may be sent to a claim during the next minutes. It is signed by whoever may grant that
// and checked by the upload proxy, which has public keys only and so cannot make any.
//
// The package knows neither Kubernetes nor where the keys are kept.
package token

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Annotation carries the proof, on a DataVolume.
const Annotation = "cdi.kubevirt.io/storage.clone.token"

// MachineAnnotation carries the proofs of the volumes that a machine is to have, on the machine: a JSON object from their
// names. They are made when somebody asks for the machine and go onto the volumes when the controller makes those, so
// that what a volume is cloned from is what its author was allowed to, whatever a reference leads to by then.
const MachineAnnotation = "berth.dev/clone-tokens"

// maxProofs bounds what Proofs decodes; the API server does not let annotations be larger.
const maxProofs = 256 << 10

// Proofs are the proofs in a MachineAnnotation, by the names of volumes. What cannot be read proves nothing.
func Proofs(text string) map[string]string {
	proofs := map[string]string{}
	if len(text) > maxProofs || json.Unmarshal([]byte(text), &proofs) != nil {
		return map[string]string{}
	}
	return proofs
}

// JoinProofs is the MachineAnnotation of proofs; none is empty.
func JoinProofs(proofs map[string]string) (string, error) {
	if len(proofs) == 0 {
		return "", nil
	}
	text, err := json.Marshal(proofs)
	if err != nil {
		return "", fmt.Errorf("write clone tokens: %w", err)
	}
	return string(text), nil
}

// KeySize is the size of a key: that of the hash it is used with.
const KeySize = sha256.Size

// maxSize bounds what Verify decodes: two kinds, names and namespaces of at most 253 characters, and JSON around them.
const maxSize = 4096

// version is part of what is authenticated, so that a later format cannot be taken for this one.
const version = "berth.clone.v1"

// Key authenticates proofs. Everybody who has it can make them.
type Key []byte

// NewKey makes a random key.
func NewKey() (Key, error) {
	k := make(Key, KeySize)
	if _, err := rand.Read(k); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return k, nil
}

// Grant is what was allowed: to make the target a clone of the source.
type Grant struct {
	Source Object `json:"source"`
	Target Object `json:"target"`
}

// Object names what a grant is about.
type Object struct {
	// Kind is PersistentVolumeClaim or VolumeSnapshot; empty on a target, which is always a claim, and on a source that
	// stands for every one in its namespace.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace"`
	// Name of a source may be empty when the user may clone everything in the namespace. Name of a target ends in *
	// when the API server was still to complete it.
	Name string `json:"name,omitempty"`
}

// Why a proof is not accepted.
var (
	ErrMalformed = errors.New("the clone token is malformed")
	ErrForged    = errors.New("the clone token was not made by this installation")
	ErrOther     = errors.New("the clone token is for another source or target")
)

// Sign makes the proof of a grant.
func (k Key) Sign(g Grant) (string, error) {
	if len(k) != KeySize {
		return "", fmt.Errorf("sign a clone token: the key has %d bytes instead of %d", len(k), KeySize)
	}
	body, err := json.Marshal(g)
	if err != nil {
		return "", fmt.Errorf("sign a clone token: %w", err)
	}
	encoding := base64.RawURLEncoding
	return encoding.EncodeToString(body) + "." + encoding.EncodeToString(k.mac(body)), nil
}

// Verify says whether the proof is ours and covers this source and target, which must be fully named.
func (k Key) Verify(proof string, wanted Grant) error {
	if len(k) != KeySize {
		return fmt.Errorf("verify a clone token: the key has %d bytes instead of %d", len(k), KeySize)
	}
	head, tail, found := strings.Cut(proof, ".")
	if !found || len(proof) > maxSize || strings.ContainsAny(proof, "\r\n") { // base64 would overlook line breaks
		return ErrMalformed
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(head)
	if err != nil {
		return ErrMalformed
	}
	mac, err := base64.RawURLEncoding.Strict().DecodeString(tail)
	if err != nil {
		return ErrMalformed
	}
	if !hmac.Equal(mac, k.mac(body)) {
		return ErrForged
	}
	var granted Grant
	if err := json.Unmarshal(body, &granted); err != nil {
		return ErrMalformed
	}
	if !granted.Source.coversSource(wanted.Source) || !granted.Target.coversTarget(wanted.Target) {
		return ErrOther
	}
	return nil
}

func (k Key) mac(body []byte) []byte {
	h := hmac.New(sha256.New, k)
	h.Write([]byte(version + "\x00"))
	h.Write(body)
	return h.Sum(nil)
}

func (o Object) coversSource(s Object) bool {
	if o.Namespace != s.Namespace || s.Namespace == "" || s.Name == "" {
		return false
	}
	return o.Name == "" || o.Name == s.Name && o.Kind == s.Kind
}

func (o Object) coversTarget(t Object) bool {
	if o.Namespace != t.Namespace || t.Namespace == "" || t.Name == "" {
		return false
	}
	prefix, open := strings.CutSuffix(o.Name, "*")
	return o.Name == t.Name || open && strings.HasPrefix(t.Name, prefix)
}
