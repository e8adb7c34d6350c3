package token_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/token"
)

func key(t testing.TB) token.Key {
	t.Helper()
	k, err := token.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pvc(namespace, name string) token.Object {
	return token.Object{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}

func TestVerify(t *testing.T) {
	ours := key(t)
	target := token.Object{Namespace: "team", Name: "disk"}
	for name, row := range map[string]struct {
		granted, wanted token.Grant
		want            error
	}{
		"the same": {token.Grant{Source: pvc("golden", "fedora"), Target: target}, token.Grant{Source: pvc("golden", "fedora"), Target: target}, nil},
		"everything in the namespace": {
			token.Grant{Source: token.Object{Namespace: "golden"}, Target: target}, token.Grant{Source: pvc("golden", "debian"), Target: target}, nil},
		"a name that was generated": {
			token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk-*"}},
			token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk-x7k2p"}}, nil},
		"another source": {
			token.Grant{Source: pvc("golden", "fedora"), Target: target}, token.Grant{Source: pvc("golden", "debian"), Target: target}, token.ErrOther},
		"a snapshot of the same name": {
			token.Grant{Source: pvc("golden", "fedora"), Target: target},
			token.Grant{Source: token.Object{Kind: "VolumeSnapshot", Namespace: "golden", Name: "fedora"}, Target: target}, token.ErrOther},
		"another source namespace": {
			token.Grant{Source: token.Object{Namespace: "golden"}, Target: target}, token.Grant{Source: pvc("secret", "fedora"), Target: target}, token.ErrOther},
		"another target": {
			token.Grant{Source: pvc("golden", "fedora"), Target: target},
			token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk2"}}, token.ErrOther},
		"another target namespace": {
			token.Grant{Source: pvc("golden", "fedora"), Target: target},
			token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "other", Name: "disk"}}, token.ErrOther},
		"a name that was generated otherwise": {
			token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk-*"}},
			token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "root-x7k2p"}}, token.ErrOther},
		"nothing granted": {token.Grant{}, token.Grant{Source: pvc("golden", "fedora"), Target: target}, token.ErrOther},
		"nothing wanted":  {token.Grant{}, token.Grant{}, token.ErrOther},
	} {
		t.Run(name, func(t *testing.T) {
			proof, err := ours.Sign(row.granted)
			if err != nil {
				t.Fatal(err)
			}
			if err := ours.Verify(proof, row.wanted); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
			if err := key(t).Verify(proof, row.wanted); !errors.Is(err, token.ErrForged) {
				t.Errorf("with another key: got %v, want %v", err, token.ErrForged)
			}
		})
	}
}

// TestTamper changes every single character of a proof; none of the results may be accepted.
func TestTamper(t *testing.T) {
	ours := key(t)
	g := token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk"}}
	proof, err := ours.Sign(g)
	if err != nil {
		t.Fatal(err)
	}
	for i := range proof {
		for _, c := range []byte("A_.=") {
			if proof[i] == c {
				continue
			}
			forged := proof[:i] + string(c) + proof[i+1:]
			if err := ours.Verify(forged, g); err == nil {
				t.Fatalf("accepted %q for %q", forged, proof)
			}
		}
	}
	body, mac, _ := strings.Cut(proof, ".")
	other := base64.RawURLEncoding.EncodeToString([]byte(`{"source":{"namespace":"golden"},"target":{"namespace":"team","name":"*"}}`))
	for _, forged := range []string{"", ".", body, body + ".", "." + mac, other + "." + mac, strings.Repeat("A", 1<<20) + "." + mac} {
		if err := ours.Verify(forged, g); err == nil {
			t.Errorf("accepted %.80q", forged)
		}
	}
}

func TestBadKey(t *testing.T) {
	if _, err := (token.Key{}).Sign(token.Grant{}); err == nil {
		t.Error("signed with an empty key")
	}
	if err := (token.Key{}).Verify("a.b", token.Grant{}); err == nil {
		t.Error("verified with an empty key")
	}
}

func FuzzVerify(f *testing.F) {
	ours := token.Key(strings.Repeat("k", token.KeySize))
	g := token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk"}}
	proof, err := ours.Sign(g)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(proof)
	f.Add("a.b")
	f.Fuzz(func(t *testing.T, s string) {
		if err := ours.Verify(s, g); err == nil && s != proof {
			t.Errorf("accepted %q", s)
		}
	})
}
