// Package token makes and checks proofs that a user was allowed to do something, for programs that act on it later.
//
// A clone token names the user who asked for a clone of an object in another namespace, and was allowed to make it. The proof is
// in an annotation of the object itself. It names the source, and the user whose rights are checked again when the volume is made,
// which may be much later. It is sealed with a key only the controller has, so a user can copy it or remove it, but neither read
// it nor make one that fits another source or another target.
//
// An upload token says that data may be sent to a claim during the next minutes. It is signed by the aggregated API server and
// checked by the upload proxy, which has public keys only and so cannot make any.
//
// The package knows neither Kubernetes nor where the keys are kept.
package token

import (
	"crypto/aes"
	"crypto/cipher"
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

// MachineAnnotation has the proofs for the volumes of a machine, on the machine: a JSON object keyed by their names. They are
// made when a user creates the machine and copied to the volumes when the controller makes those, so that a volume is cloned only
// from what its author was allowed to clone, whatever a reference leads to by then.
const MachineAnnotation = "berth.dev/clone-tokens"

// maxProofs bounds what Proofs decodes; the API server does not let annotations be larger.
const maxProofs = 256 << 10

// Proofs returns the proofs in a MachineAnnotation, by the names of volumes. Invalid ones are left out.
func Proofs(text string) map[string]string {
	proofs := map[string]string{}
	if len(text) > maxProofs || json.Unmarshal([]byte(text), &proofs) != nil {
		return map[string]string{}
	}
	return proofs
}

// JoinProofs returns the MachineAnnotation of proofs; none is empty.
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

// maxSize bounds what Verify decodes: a few names of at most 253 characters, and the user, who may be in many groups.
const maxSize = 64 << 10

// version begins every proof and is authenticated with it, so that a later format cannot be taken for this one. Proofs of the
// version before named neither the user nor the reference, and are no longer valid.
const version = "berth.clone.v2"

// Key seals proofs. A program that has it can make them.
type Key []byte

// NewKey makes a random key.
func NewKey() (Key, error) {
	k := make(Key, KeySize)
	if _, err := rand.Read(k); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return k, nil
}

// Grant is the permission to make the target a clone of the source.
type Grant struct {
	Source Object `json:"source"`
	Target Object `json:"target"`
	// Via is the DataSource that the volume names, if that lies in the namespace of what it leads to. Users who may edit it
	// control that namespace's data, so it may lead to another source there later, which is how golden images become newer. A
	// DataSource elsewhere is controlled by others, and only the source it led to then is allowed.
	Via *Object `json:"via,omitempty"`
	// By is the user who asked.
	By User `json:"by"`
}

// User identifies a user whose rights can be checked.
type User struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// Object names what a grant is about.
type Object struct {
	// Kind is PersistentVolumeClaim or VolumeSnapshot; empty on a target, which is always a claim, on a DataSource, and on a
	// source that is still to come.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace"`
	// Name of a source is empty if its DataSource was still to come.
	Name string `json:"name,omitempty"`
}

// Why a proof is not accepted.
var (
	ErrMalformed = errors.New("the clone token is malformed")
	ErrForged    = errors.New("the clone token was not made by this installation")
	ErrOther     = errors.New("the clone token is for another source or target")
	ErrRevoked   = errors.New("the user who asked for the clone may not clone it any more")
)

// Sign makes the proof of a grant.
func (k Key) Sign(g Grant) (string, error) {
	seal, err := k.seal()
	if err != nil {
		return "", fmt.Errorf("sign a clone token: %w", err)
	}
	body, err := json.Marshal(g)
	if err != nil {
		return "", fmt.Errorf("sign a clone token: %w", err)
	}
	nonce := make([]byte, seal.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return "", fmt.Errorf("sign a clone token: %w", err)
	}
	proof := version + "." + base64.RawURLEncoding.EncodeToString(seal.Seal(nonce, nonce, body, []byte(version)))
	if len(proof) > maxSize {
		return "", fmt.Errorf("sign a clone token: %s is in too many groups: the token would have %d bytes, more than %d", g.By.Name, len(proof), maxSize)
	}
	return proof, nil
}

// Verify returns whether the proof is ours and covers this source and target, which must be fully named, and who was allowed it.
func (k Key) Verify(proof string, wanted Grant) (User, error) {
	seal, err := k.seal()
	if err != nil {
		return User{}, fmt.Errorf("verify a clone token: %w", err)
	}
	text, found := strings.CutPrefix(proof, version+".")
	if !found || len(proof) > maxSize || strings.ContainsAny(proof, "\r\n") { // base64 would overlook line breaks
		return User{}, ErrMalformed
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) < seal.NonceSize() {
		return User{}, ErrMalformed
	}
	body, err := seal.Open(nil, sealed[:seal.NonceSize()], sealed[seal.NonceSize():], []byte(version))
	if err != nil {
		return User{}, ErrForged
	}
	var granted Grant
	if err := json.Unmarshal(body, &granted); err != nil {
		return User{}, ErrMalformed
	}
	if !granted.covers(wanted) {
		return User{}, ErrOther
	}
	return granted.By, nil
}

// seal uses a key derived for it alone: the same key may have authenticated proofs of the version before.
func (k Key) seal() (cipher.AEAD, error) {
	if len(k) != KeySize {
		return nil, fmt.Errorf("the key has %d bytes instead of %d", len(k), KeySize)
	}
	h := hmac.New(sha256.New, k)
	h.Write([]byte(version))
	block, err := aes.NewCipher(h.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (g Grant) covers(w Grant) bool {
	if !named(w.Source) || !named(w.Target) || g.By.Name == "" || g.Target != w.Target {
		return false
	}
	follows := g.Via != nil && w.Via != nil && *g.Via == *w.Via && w.Source.Namespace == g.Via.Namespace
	return g.Source == w.Source || follows
}

func named(o Object) bool { return o.Namespace != "" && o.Name != "" }
