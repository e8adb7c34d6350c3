package token_test

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/token"
)

// TestKeysAreReplacedWithOverlap walks through a week, hour by hour. At every moment a signer has the seeds of an hour ago or of
// now, and a verifier the public keys of an hour ago or of now; the signature is always valid.
func TestKeysAreReplacedWithOverlap(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	seeds, err := token.Seeds(nil).Rotate(now)
	if err != nil || len(seeds) != 1 {
		t.Fatalf("%v %v", seeds, err)
	}
	used := map[string]bool{}
	for range 7 * 24 {
		now = now.Add(time.Hour)
		next, err := seeds.Rotate(now)
		if err != nil {
			t.Fatal(err)
		}
		old := seeds
		seeds = next
		if len(seeds) > 3 {
			t.Fatalf("%d keys at %s", len(seeds), now)
		}
		for name, signer := range map[string]token.Seeds{"the seeds of an hour ago": old, "the seeds of now": seeds} {
			key, err := signer.Key(now)
			if err != nil {
				t.Fatal(err)
			}
			used[string(key)] = true
			proof, err := token.SignUpload(key, claim, now.Add(5*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			for _, published := range []token.Seeds{old, seeds} {
				if _, err := token.VerifyUpload(token.ReadPublic(published.Public()), proof, now); err != nil {
					t.Fatalf("at %s, signed with %s: %v", now, name, err)
				}
			}
		}
	}
	if len(used) < 6 {
		t.Errorf("%d keys signed in a week", len(used))
	}
}

func TestDamagedKeys(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	if _, err := (token.Seeds{"1699999999": []byte("short"), "name": make([]byte, ed25519.SeedSize)}).Key(now); err == nil {
		t.Error("signed with a damaged key")
	}
	seeds, err := token.Seeds{"1699999999": []byte("short"), "9999999999": make([]byte, ed25519.SeedSize)}.Rotate(now)
	if err != nil || len(seeds) != 1 || seeds["9999999999"] != nil {
		t.Errorf("%v, %v", seeds, err)
	}
	if keys := token.ReadPublic(map[string]string{"1": "no base64!", "2": "YQ==", "..data": "x"}); len(keys) != 0 {
		t.Errorf("read %v", keys)
	}
}
