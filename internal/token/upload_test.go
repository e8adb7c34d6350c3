package token_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/token"
)

var (
	seed    = ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))
	other   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", ed25519.SeedSize)))
	claim   = token.Claim{Namespace: "team", Name: "disk", UID: "1b4e28ba"}
	minted  = time.Unix(1_700_000_000, 0)
	expires = minted.Add(5 * time.Minute)
)

func public(keys ...ed25519.PrivateKey) []ed25519.PublicKey {
	var out []ed25519.PublicKey
	for _, k := range keys {
		out = append(out, k.Public().(ed25519.PublicKey))
	}
	return out
}

func TestUploadToken(t *testing.T) {
	proof, err := token.SignUpload(seed, claim, expires)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		keys []ed25519.PublicKey
		now  time.Time
		want error
	}{
		"fresh":                        {public(seed), minted, nil},
		"while the keys are rotated":   {public(other, seed), minted, nil},
		"in its last second":           {public(seed), expires.Add(-time.Second), nil},
		"expired":                      {public(seed), expires, token.ErrUploadExpired},
		"of another installation":      {public(other), minted, token.ErrUploadForged},
		"when its key is gone":         {nil, minted, token.ErrUploadForged},
		"with a key that is no key":    {[]ed25519.PublicKey{[]byte("short")}, minted, token.ErrUploadForged},
		"forged and expired is forged": {public(other), expires, token.ErrUploadForged},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := token.VerifyUpload(row.keys, proof, row.now)
			if !errors.Is(err, row.want) {
				t.Fatalf("got %v, want %v", err, row.want)
			}
			if row.want == nil && got != claim {
				t.Errorf("got %+v, want %+v", got, claim)
			}
		})
	}
}

func TestUploadTokenNeedsAWholeClaim(t *testing.T) {
	for _, c := range []token.Claim{{}, {Namespace: "a", Name: "b"}, {Namespace: "a", UID: "c"}, {Name: "b", UID: "c"}} {
		if _, err := token.SignUpload(seed, c, expires); err == nil {
			t.Errorf("signed %+v", c)
		}
	}
	if _, err := token.SignUpload(nil, claim, expires); err == nil {
		t.Error("signed without a key")
	}
}

// TestTamperWithUploadToken changes every single character of a token; none of the results may be accepted.
func TestTamperWithUploadToken(t *testing.T) {
	proof, err := token.SignUpload(seed, claim, expires)
	if err != nil {
		t.Fatal(err)
	}
	for i := range proof {
		for _, c := range []byte("A_.=\n") {
			if proof[i] == c {
				continue
			}
			if _, err := token.VerifyUpload(public(seed), proof[:i]+string(c)+proof[i+1:], minted); err == nil {
				t.Fatalf("accepted %q in place of byte %d of %q", c, i, proof)
			}
		}
	}
}

func FuzzVerifyUpload(f *testing.F) {
	proof, err := token.SignUpload(seed, claim, expires)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(proof)
	f.Add("a.b")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := token.VerifyUpload(public(seed), s, minted); err == nil && s != proof {
			t.Errorf("accepted %q", s)
		}
	})
}

// FuzzUploadBody: whatever was signed, what is accepted names a whole claim and has not expired.
func FuzzUploadBody(f *testing.F) {
	f.Add([]byte(`{"namespace":"team","name":"disk","uid":"1b4e28ba","expires":1700000300}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		encoding := base64.RawURLEncoding
		signature := ed25519.Sign(seed, append([]byte("berth.upload.v1\x00"), body...))
		got, err := token.VerifyUpload(public(seed), encoding.EncodeToString(body)+"."+encoding.EncodeToString(signature), minted)
		if errors.Is(err, token.ErrUploadForged) {
			t.Fatalf("%q: a good signature is taken for a forged one", body)
		}
		var said struct {
			Expires int64 `json:"expires"`
		}
		if err == nil && (got.Namespace == "" || got.Name == "" || got.UID == "" || json.Unmarshal(body, &said) != nil || said.Expires <= minted.Unix()) {
			t.Errorf("%q is accepted for %+v", body, got)
		}
	})
}
