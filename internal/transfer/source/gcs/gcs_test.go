package gcs

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/testing/stores"
	"github.com/berth-vm/berth/internal/transfer/source"
)

const object = "images/my disk.qcow2"

// accountKey is one for all tests: making it takes its time.
var accountKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// cloud is the emulator behind a check of tokens, and the server that gives tokens to clients with the key.
type cloud struct {
	storage *stores.Store
	tokens  *httptest.Server
	key     *rsa.PrivateKey
	open    bool // no token wanted
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	key, err := accountKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{key: key, storage: stores.New(t, stores.GCS)}
	c.tokens = httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if err := verify(r.FormValue("assertion"), &key.PublicKey); err != nil {
			nethttp.Error(w, `{"error":"invalid_grant"}`, nethttp.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"let-me-in","token_type":"Bearer","expires_in":3600}`))
	}))
	t.Cleanup(c.tokens.Close)
	return c
}

// verify checks the signature of a JSON Web Token (RFC 7515, RS256).
func verify(token string, key *rsa.PublicKey) error {
	at := strings.LastIndex(token, ".")
	if at < 0 {
		return errors.New("no token")
	}
	signature, err := base64.RawURLEncoding.DecodeString(token[at+1:])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(token[:at]))
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature)
}

func (c *cloud) put(_ *testing.T, content []byte) {
	c.storage.Put("bucket", object, "", content)
}

func (c *cloud) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	if !c.open && r.Header.Get("Authorization") != "Bearer let-me-in" {
		nethttp.Error(w, "no", nethttp.StatusUnauthorized)
		return
	}
	c.storage.ServeHTTP(w, r)
}

// secret returns a service account's key as Google hands it out.
func (c *cloud) secret(t *testing.T, key *rsa.PrivateKey) string {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return mount(t, map[string]string{"type": "service_account", "client_email": "me@example.com", "private_key_id": "1",
		"private_key": string(text), "token_uri": c.tokens.URL})
}

func mount(t *testing.T, key map[string]string) string {
	t.Helper()
	text, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keyFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func at(base, object string) string {
	return base + "/bucket/" + (&url.URL{Path: object}).EscapedPath()
}

func harness(t *testing.T) sourcetest.Harness {
	t.Helper()
	c := newCloud(t)
	other, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	get := func(object string, key *rsa.PrivateKey) func(*testing.T, string) (source.Blob, error) {
		return func(t *testing.T, base string) (source.Blob, error) {
			t.Helper()
			in := task.GCS{URL: at(base, object), Access: task.Access{CredentialsDir: c.secret(t, key)}}
			return open(t.Context(), in, sourcetest.Patience)
		}
	}
	return sourcetest.Harness{
		Server: c, Put: c.put, Data: func(*nethttp.Request) bool { return true },
		Open: get(object, c.key), OpenWrong: get(object, other), OpenMissing: get("none", c.key),
	}
}

func TestConformance(t *testing.T) { sourcetest.Serve(t, harness) }

func TestAnonymous(t *testing.T) {
	c := newCloud(t)
	content := sourcetest.Content(1, 1000)
	c.put(t, content)
	server := httptest.NewServer(c)
	defer server.Close()
	_, err := open(t.Context(), task.GCS{URL: at(server.URL, object)}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceDenied)
	c.open = true
	b, err := open(t.Context(), task.GCS{URL: at(server.URL, object)}, sourcetest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sourcetest.Same(t, b, 0, -1, content)
	if v := b.Info().Version; !strings.HasPrefix(v, "version:") {
		t.Errorf("version is %q, want the generation", v)
	}
}

// TestStoredCompressed is about objects that Google would decompress on the way.
func TestStoredCompressed(t *testing.T) {
	c := newCloud(t)
	c.open = true
	var content bytes.Buffer
	w := gzip.NewWriter(&content)
	if _, err := w.Write(make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	c.storage.Put("bucket", object, "gzip", content.Bytes())
	server := httptest.NewServer(c)
	defer server.Close()
	b, err := open(t.Context(), task.GCS{URL: at(server.URL, object)}, sourcetest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sourcetest.Same(t, b, 0, -1, content.Bytes())
}

func TestKeysThatAreNone(t *testing.T) {
	for name, dir := range map[string]string{
		"no file":         t.TempDir(),
		"another account": mount(t, map[string]string{"type": "external_account", "client_email": "a", "private_key": "b"}),
		"no key":          mount(t, map[string]string{"type": "service_account"}),
		"bad key":         mount(t, map[string]string{"type": "service_account", "client_email": "a", "private_key": "b"}),
	} {
		t.Run(name, func(t *testing.T) {
			in := task.GCS{URL: "http://127.0.0.1:1/bucket/key", Access: task.Access{CredentialsDir: dir}}
			_, err := open(t.Context(), in, sourcetest.Patience)
			sourcetest.Fails(t, err, task.SourceDenied)
		})
	}
}
