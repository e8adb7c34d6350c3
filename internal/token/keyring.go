package token

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// The keys of upload tokens are replaced every day. A key is published before it signs and after it has signed for as
// long as it takes a mounted Secret to arrive everywhere (minutes) and a token to expire (minutes): hours, to be safe.
const (
	tokenKeyEvery = 24 * time.Hour
	tokenKeyKnown = time.Hour
)

// Seeds are the keys that sign upload tokens, each under the second it was made in.
type Seeds map[string][]byte

// Rotate returns what the seeds must be now. It is pure but for making keys.
func (have Seeds) Rotate(now time.Time) (Seeds, error) {
	want := Seeds{}
	var newest time.Time
	for name, seed := range have {
		made, ok := madeAt(name)
		if !ok || len(seed) != ed25519.SeedSize || made.After(now.Add(time.Minute)) {
			continue // not one of our keys
		}
		want[name] = seed
		if made.After(newest) {
			newest = made
		}
	}
	if now.Sub(newest) >= tokenKeyEvery {
		seed := make([]byte, ed25519.SeedSize)
		if _, err := rand.Read(seed); err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
		want[strconv.FormatInt(now.Unix(), 10)] = seed
	}
	for name := range want { // the last ones stay: what they signed must be accepted until it expires
		if made, _ := madeAt(name); now.Sub(made) >= 2*tokenKeyEvery {
			delete(want, name)
		}
	}
	return want, nil
}

func madeAt(name string) (time.Time, bool) {
	n, err := strconv.ParseInt(name, 10, 64)
	return time.Unix(n, 0), err == nil && n > 0
}

// Key returns the key that signs now: the newest that all verifiers have, or the oldest if there is none.
func (have Seeds) Key(now time.Time) (ed25519.PrivateKey, error) {
	names := slices.SortedFunc(maps.Keys(have), func(a, b string) int {
		first, _ := madeAt(a)
		second, _ := madeAt(b)
		return first.Compare(second)
	})
	var chosen []byte
	for _, name := range names {
		made, ok := madeAt(name)
		if !ok || len(have[name]) != ed25519.SeedSize {
			continue
		}
		if chosen == nil || now.Sub(made) >= tokenKeyKnown {
			chosen = have[name]
		}
	}
	if chosen == nil {
		return nil, errors.New("there is no key to sign upload tokens with yet")
	}
	return ed25519.NewKeyFromSeed(chosen), nil
}

// Public returns what those get to see who check tokens.
func (have Seeds) Public() map[string]string {
	out := map[string]string{}
	for name, seed := range have {
		public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		out[name] = base64.StdEncoding.EncodeToString(public)
	}
	return out
}

// ReadPublic reads what Public wrote; whatever else is there is no key.
func ReadPublic(published map[string]string) []ed25519.PublicKey {
	var out []ed25519.PublicKey
	for _, name := range slices.Sorted(maps.Keys(published)) {
		key, err := base64.StdEncoding.DecodeString(published[name])
		if _, ok := madeAt(name); err == nil && ok && len(key) == ed25519.PublicKeySize {
			out = append(out, key)
		}
	}
	return out
}
