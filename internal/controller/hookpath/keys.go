package hookpath

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A key is published before it is used for as long as every replica needs to read it, and accepted after its successor is used for as long as
// the API server needs to hear of that. The API server tells users the path of a webhook that it could not reach: so a path does not last.
const (
	keyEvery = 10 * time.Minute
	keyKnown = 3 * readEvery
	keyStays = time.Minute

	keySize    = 32
	wordLength = 48 // hexadecimal digits: 192 bits
)

// Keys are the secrets that paths are derived from, each under the second that it was made in.
type Keys map[string][]byte

// Rotate returns what the keys must be now. With renew, the newest key is replaced even if it is not due.
func (k Keys) Rotate(now time.Time, renew bool) Keys {
	want := Keys{}
	for name, key := range k {
		if made, ok := madeAt(name); ok && len(key) == keySize && !made.After(now.Add(time.Minute)) {
			want[name] = key
		}
	}
	names := want.names()
	age := keyEvery
	if len(names) > 0 {
		made, _ := madeAt(names[len(names)-1])
		age = now.Sub(made)
	}
	if age >= keyEvery || renew && age >= keyStays {
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // it never fails
		want[strconv.FormatInt(now.Unix(), 10)] = key
	}
	if used := want.used(now); used != "" {
		made, _ := madeAt(used)
		maps.DeleteFunc(want, func(name string, _ []byte) bool {
			older, _ := madeAt(name)
			return older.Before(made) && now.Sub(made) >= keyKnown+keyStays
		})
	}
	return want
}

func madeAt(name string) (time.Time, bool) {
	n, err := strconv.ParseInt(name, 10, 64)
	return time.Unix(n, 0), err == nil && n > 0
}

// names lists the keys, the oldest first.
func (k Keys) names() []string {
	return slices.SortedFunc(maps.Keys(k), func(a, b string) int {
		first, _ := madeAt(a)
		second, _ := madeAt(b)
		return first.Compare(second)
	})
}

// used names the key that paths are made with: the newest that every replica knows, or the oldest if there is none.
func (k Keys) used(now time.Time) string {
	names := k.names()
	for _, name := range slices.Backward(names) {
		if made, _ := madeAt(name); now.Sub(made) >= keyKnown {
			return name
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// Path returns the path of a webhook now. Each webhook has a key of its own: one that became known does not open the others.
func (k Keys) Path(plain string, now time.Time) string {
	return "/" + secretPart(k[k.used(now)], plain) + plain
}

// Open returns the plain path of one that was made with any of the keys. How long it takes does not depend on how much of a word is right.
func (k Keys) Open(path string) (plain string, ok bool) {
	if len(path) < 1+wordLength || path[0] != '/' {
		return "", false
	}
	said, plain := path[1:1+wordLength], path[1+wordLength:]
	if !strings.HasPrefix(plain, "/") {
		return "", false
	}
	found := 0
	for _, key := range k {
		found |= subtle.ConstantTimeCompare([]byte(said), []byte(secretPart(key, plain)))
	}
	return plain, found == 1
}

func secretPart(key []byte, plain string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(plain))
	return hex.EncodeToString(mac.Sum(nil))[:wordLength]
}
