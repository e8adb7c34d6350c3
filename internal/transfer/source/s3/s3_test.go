package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/testing/stores"
	"github.com/berth-vm/berth/internal/transfer/source"
)

const (
	key    = "AKIDEXAMPLE"
	pass   = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	object = "images/my disk+1.qcow2"
)

// store is an S3 server that checks signatures as Amazon documents them, which the emulator does not.
type store struct {
	*stores.Store
	region string
	open   bool // no signature wanted
}

func newStore(t *testing.T) *store {
	t.Helper()
	return &store{Store: stores.New(t, stores.S3), region: "us-east-1"}
}

func (s *store) put(_ *testing.T, content []byte) { s.Put("bucket", object, "", content) }

func (s *store) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	if !s.open {
		region, ok := verify(r)
		if region != s.region {
			w.WriteHeader(nethttp.StatusBadRequest)
			fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Region>%s</Region></Error>", s.region)
			return
		}
		if !ok {
			w.WriteHeader(nethttp.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>SignatureDoesNotMatch</Code></Error>")
			return
		}
	}
	s.Store.ServeHTTP(w, r)
}

// verify is AWS Signature Version 4 from its documentation: the region a request is signed for and whether the signature is right.
func verify(r *nethttp.Request) (region string, ok bool) {
	auth, found := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !found {
		return "us-east-1", false
	}
	field := map[string]string{}
	for part := range strings.SplitSeq(auth, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		field[name] = value
	}
	scope := strings.Split(field["Credential"], "/")
	if len(scope) != 5 || scope[0] != key {
		return "", false
	}
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n%s\n", r.Method, r.URL.EscapedPath(), r.URL.Query().Encode())
	for name := range strings.SplitSeq(field["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		if value == "" {
			value = r.Header.Get("Hidden-" + name)
		}
		if name == "host" {
			value = r.Host
		}
		fmt.Fprintf(&canonical, "%s:%s\n", name, value)
	}
	fmt.Fprintf(&canonical, "\n%s\n%s", field["SignedHeaders"], r.Header.Get("X-Amz-Content-Sha256"))
	sum := sha256.Sum256([]byte(canonical.String()))
	text := fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", r.Header.Get("X-Amz-Date"), strings.Join(scope[1:], "/"), sum)
	mac := []byte("AWS4" + pass)
	for _, part := range append(scope[1:], text) {
		h := hmac.New(sha256.New, mac)
		h.Write([]byte(part))
		mac = h.Sum(nil)
	}
	return scope[2], hex.EncodeToString(mac) == field["Signature"]
}

func secret(t *testing.T, user, pass string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"accessKeyId": user, "secretKey": pass} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func harness(t *testing.T, s *store) sourcetest.Harness {
	t.Helper()
	get := func(object, pass string) func(*testing.T, string) (source.Blob, error) {
		return func(t *testing.T, base string) (source.Blob, error) {
			t.Helper()
			in := task.S3{URL: base + "/bucket/" + (&url.URL{Path: object}).EscapedPath()}
			if !s.open || pass != "-" {
				in.CredentialsDir = secret(t, key, pass)
			}
			return open(t.Context(), in, sourcetest.Patience)
		}
	}
	return sourcetest.Harness{
		Server: s, Put: s.put, Data: func(*nethttp.Request) bool { return true },
		Open: get(object, pass), OpenWrong: get(object, "guess"), OpenMissing: get("none", pass),
	}
}

func TestConformance(t *testing.T) {
	sourcetest.Serve(t, func(t *testing.T) sourcetest.Harness { return harness(t, newStore(t)) })
}

func TestBucketInAnotherRegion(t *testing.T) {
	s := newStore(t)
	s.region = "eu-central-1"
	content := sourcetest.Content(1, 1000)
	s.put(t, content)
	server := httptest.NewServer(s)
	defer server.Close()
	b, err := harness(t, s).Open(t, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sourcetest.Same(t, b, 0, -1, content)
}

func TestAnonymous(t *testing.T) {
	s := newStore(t)
	content := sourcetest.Content(1, 1000)
	s.put(t, content)
	server := httptest.NewServer(s)
	defer server.Close()
	in := task.S3{URL: server.URL + "/bucket/" + (&url.URL{Path: object}).EscapedPath()}
	_, err := open(t.Context(), in, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceDenied)
	s.open = true
	b, err := open(t.Context(), in, sourcetest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sourcetest.Same(t, b, 0, -1, content)
}

func TestSignedForAWS(t *testing.T) {
	for in, want := range map[string]string{
		"s3://bucket/a/b c":                           "https://s3.eu-west-1.amazonaws.com/bucket/a/b%20c",
		"https://bucket.s3.amazonaws.com/a":           "https://bucket.s3.eu-west-1.amazonaws.com/a",
		"https://s3.eu-west-1.amazonaws.com/bucket/a": "https://s3.eu-west-1.amazonaws.com/bucket/a",
		"https://minio.example:9000/bucket/a":         "https://minio.example:9000/bucket/a",
	} {
		u, err := parse(in)
		if err != nil {
			t.Fatal(err)
		}
		r, err := nethttp.NewRequestWithContext(t.Context(), "GET", u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newSigner(nil, struct{ User, Secret string }{key, pass}, u)
		if got := s.signed(r, "eu-west-1"); got.URL.String() != want || got.Header.Get("Authorization") == "" {
			t.Errorf("%s is asked for at %s, want %s, signed", in, got.URL, want)
		}
	}
}
