package token_test

import (
	"encoding/base64"
	"errors"
	"reflect"
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
	alice := token.User{Name: "alice", UID: "1", Groups: []string{"staff"}, Extra: map[string][]string{"scopes": {"a"}}}
	disk := token.Object{Namespace: "team", Name: "disk"}
	grant := func(source, target token.Object, via ...string) token.Grant {
		g := token.Grant{Source: source, Target: target, By: alice}
		if len(via) > 0 {
			g.Via = &token.Object{Namespace: via[0], Name: via[1]}
		}
		return g
	}
	fedora, debian := pvc("golden", "fedora"), pvc("golden", "debian")
	for name, row := range map[string]struct {
		granted, wanted token.Grant
		want            error
	}{
		"the same":                      {grant(fedora, disk), grant(fedora, disk), nil},
		"the same, by a reference now":  {grant(fedora, disk), grant(fedora, disk, "team", "os"), nil},
		"what a reference leads to now": {grant(fedora, disk, "golden", "os"), grant(debian, disk, "golden", "os"), nil},
		"what a reference leads to at last": {
			grant(token.Object{Namespace: "golden"}, disk, "golden", "os"), grant(debian, disk, "golden", "os"), nil},
		"a snapshot instead": {
			grant(fedora, disk, "golden", "os"), grant(token.Object{Kind: "VolumeSnapshot", Namespace: "golden", Name: "x"}, disk, "golden", "os"), nil},
		"another source":                      {grant(fedora, disk), grant(debian, disk), token.ErrOther},
		"another source by a reference":       {grant(fedora, disk), grant(debian, disk, "golden", "os"), token.ErrOther},
		"another source of a tenant's choice": {grant(fedora, disk), grant(debian, disk, "team", "os"), token.ErrOther},
		"another reference":                   {grant(fedora, disk, "golden", "os"), grant(debian, disk, "golden", "other"), token.ErrOther},
		"a reference of that name elsewhere":  {grant(fedora, disk, "golden", "os"), grant(debian, disk, "team", "os"), token.ErrOther},
		"a reference that leads elsewhere":    {grant(fedora, disk, "golden", "os"), grant(pvc("secret", "fedora"), disk, "golden", "os"), token.ErrOther},
		"no reference any more":               {grant(fedora, disk, "golden", "os"), grant(debian, disk), token.ErrOther},
		"everything in a namespace":           {grant(token.Object{Namespace: "golden"}, disk), grant(debian, disk), token.ErrOther},
		"a snapshot of the same name":         {grant(fedora, disk), grant(token.Object{Kind: "VolumeSnapshot", Namespace: "golden", Name: "fedora"}, disk), token.ErrOther},
		"another target":                      {grant(fedora, disk), grant(fedora, token.Object{Namespace: "team", Name: "disk2"}), token.ErrOther},
		"another target namespace":            {grant(fedora, disk), grant(fedora, token.Object{Namespace: "other", Name: "disk"}), token.ErrOther},
		"a name that begins like it":          {grant(fedora, token.Object{Namespace: "team", Name: "disk-*"}), grant(fedora, token.Object{Namespace: "team", Name: "disk-x7k2p"}), token.ErrOther},
		"for nobody":                          {token.Grant{Source: fedora, Target: disk}, grant(fedora, disk), token.ErrOther},
		"nothing granted":                     {token.Grant{}, grant(fedora, disk), token.ErrOther},
		"nothing wanted":                      {token.Grant{By: alice}, token.Grant{}, token.ErrOther},
	} {
		t.Run(name, func(t *testing.T) {
			proof, err := ours.Sign(row.granted)
			if err != nil {
				t.Fatal(err)
			}
			by, err := ours.Verify(proof, row.wanted)
			if !errors.Is(err, row.want) || err == nil && !reflect.DeepEqual(by, alice) {
				t.Errorf("got %v, %v, want %v", by, err, row.want)
			}
			if _, err := key(t).Verify(proof, row.wanted); !errors.Is(err, token.ErrForged) {
				t.Errorf("with another key: got %v, want %v", err, token.ErrForged)
			}
			if sealed, err := base64.RawURLEncoding.DecodeString(proof[strings.LastIndex(proof, ".")+1:]); err != nil || strings.Contains(string(sealed), "alice") {
				t.Errorf("everybody can read who asked: %q, %v", sealed, err)
			}
		})
	}
}

// TestTamper changes every single character of a proof; none of the results may be accepted.
func TestTamper(t *testing.T) {
	ours := key(t)
	g := token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk"}, By: token.User{Name: "alice"}}
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
			if _, err := ours.Verify(forged, g); err == nil {
				t.Fatalf("accepted %q for %q", forged, proof)
			}
		}
	}
	at := strings.LastIndex(proof, ".")
	version, sealed := proof[:at], proof[at+1:]
	other := base64.RawURLEncoding.EncodeToString([]byte(`{"source":{"namespace":"golden","name":"fedora"},"target":{"namespace":"team","name":"disk"},"by":{"name":"admin"}}`))
	for _, forged := range []string{"", ".", version, version + ".", "." + sealed, sealed, version + "." + other, "berth.clone.v1." + sealed,
		version + "." + sealed[:20], version + "." + sealed + "\n", version + "." + strings.Repeat("A", 1<<20)} {
		if _, err := ours.Verify(forged, g); err == nil {
			t.Errorf("accepted %.80q", forged)
		}
	}
}

// TestManyGroups: a user in more groups than a proof can name is refused, and not given one that says less.
func TestManyGroups(t *testing.T) {
	g := token.Grant{By: token.User{Name: "alice"}}
	for range 5000 {
		g.By.Groups = append(g.By.Groups, "cn=a-group,ou=of-many,dc=example,dc=com")
	}
	if proof, err := key(t).Sign(g); err == nil {
		t.Errorf("a proof of %d bytes", len(proof))
	}
}

func TestBadKey(t *testing.T) {
	if _, err := (token.Key{}).Sign(token.Grant{}); err == nil {
		t.Error("signed with an empty key")
	}
	if _, err := (token.Key{}).Verify("a.b", token.Grant{}); err == nil {
		t.Error("verified with an empty key")
	}
}

func FuzzVerify(f *testing.F) {
	ours := token.Key(strings.Repeat("k", token.KeySize))
	g := token.Grant{Source: pvc("golden", "fedora"), Target: token.Object{Namespace: "team", Name: "disk"}, By: token.User{Name: "alice"}}
	// Fixed: every process of the fuzzer would sign another one, and take the others' for forged.
	const proof = "berth.clone.v2.S6jz6Ecd4hhwMGfrWCI-41g6SBKVQRMe_3TOAFhfZQKlEWmDMQABDah1A0i9ZC68Hf3gTGIYG0M-Dd1ta8EHwprG9Em0tl6Y" +
		"3RnWpBNGKbXjQSngDWkW02i43mWcvEfKwrctKHK9pgWQqAiYXv3ZbKc0YnVv-_FC_NAvXmfweXlfV1OSzV5X37jYGTTBF6Rvd4awap1HRAMEMTMUF_w3ip58jGr9" +
		"RWbUB886wZG0"
	if _, err := ours.Verify(proof, g); err != nil {
		f.Fatal(err)
	}
	f.Add(proof)
	f.Add("a.b")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := ours.Verify(s, g); err == nil && s != proof {
			t.Errorf("accepted %q", s)
		}
	})
}
