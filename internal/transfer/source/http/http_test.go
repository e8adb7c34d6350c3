package http

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	nethttp "net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// site is a web server with one file, guarded by a password.
type site struct {
	content  atomic.Pointer[[]byte]
	weak     bool         // no strong ETag
	modified atomic.Int64 // seconds
}

func (s *site) put(_ *testing.T, b []byte) {
	s.content.Store(&b)
	s.modified.Add(60)
}

func (s *site) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	if user, pass, _ := r.BasicAuth(); user != "user" || pass != "secret" {
		nethttp.Error(w, "who are you", nethttp.StatusUnauthorized)
		return
	}
	if r.URL.Path != "/disk.img" {
		nethttp.NotFound(w, r)
		return
	}
	if r.Method == nethttp.MethodHead {
		nethttp.Error(w, "no HEAD", nethttp.StatusMethodNotAllowed)
		return
	}
	b := *s.content.Load()
	sum := sha256.Sum256(b)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	if s.weak {
		etag = "W/" + etag
	}
	w.Header().Set("ETag", etag)
	nethttp.ServeContent(w, r, "", time.Unix(1_600_000_000+s.modified.Load(), 0), bytes.NewReader(b))
}

// epoch is when the files of tests were made.
var epoch = time.Unix(1_600_000_000, 0)

// secret makes a mounted secret.
func secret(t *testing.T, user, pass string) string {
	t.Helper()
	return mount(t, map[string]string{"accessKeyId": user, "secretKey": pass + "\n"})
}

func mount(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func harness(s *site) func(*testing.T) sourcetest.Harness {
	return func(*testing.T) sourcetest.Harness {
		s := &site{weak: s.weak}
		get := func(path, pass string) func(*testing.T, string) (source.Blob, error) {
			return func(t *testing.T, base string) (source.Blob, error) {
				t.Helper()
				h := task.HTTP{URL: base + path, Access: task.Access{CredentialsDir: secret(t, "user", pass)}}
				return open(t.Context(), h, sourcetest.Patience)
			}
		}
		return sourcetest.Harness{
			Server: s, Put: s.put, Data: func(*nethttp.Request) bool { return true },
			Open: get("/disk.img", "secret"), OpenWrong: get("/disk.img", "guess"), OpenMissing: get("/none.img", "secret"),
		}
	}
}

func TestConformance(t *testing.T) { sourcetest.Serve(t, harness(&site{})) }

func TestConformanceWithoutStrongETag(t *testing.T) { sourcetest.Serve(t, harness(&site{weak: true})) }
