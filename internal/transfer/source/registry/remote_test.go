package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
)

// small returns an image whose disk says text.
func small(t testing.TB, text string) v1.Image {
	t.Helper()
	return build(t, v1.Config{}, gz(t, layer(t, entry{name: "disk/disk.img", body: []byte(text)})))
}

// says checks that the disk of an image is text.
func says(t *testing.T, in task.Registry, text string) {
	t.Helper()
	b, err := open(t.Context(), in, sourcetest.Patience)
	if err != nil {
		t.Error(err)
		return
	}
	defer b.Close()
	if got, err := readDisk(t.Context(), b); err != nil || string(got) != text {
		t.Errorf("the disk says %q (%v), want %q", got, err, text)
	}
}

func TestCredentials(t *testing.T) {
	h := newHub()
	h.push(t, "vm/disk:v1", small(t, "hello"))
	at := serve(t, h)
	host := strings.TrimPrefix(at, "docker://")
	auth := base64.StdEncoding.EncodeToString([]byte("user:secret"))
	docker := func(keys ...string) map[string]string {
		auths := map[string]any{}
		for _, k := range keys {
			auths[k] = map[string]string{"auth": auth}
		}
		text, err := json.Marshal(map[string]any{"auths": auths})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{dockerFile: string(text)}
	}
	for name, c := range map[string]struct {
		files map[string]string
		ok    bool
	}{
		"user and password": {map[string]string{"accessKeyId": "user", "secretKey": "secret"}, true},
		"docker":            {docker(host), true},
		"docker URL":        {docker("https://" + host + "/v1/"), true},
		"docker repository": {docker(host + "/vm"), true},
		"docker, another":   {docker(host+"/other", "example.com"), false},
		"docker, broken":    {map[string]string{dockerFile: "{"}, false},
		"nothing":           {map[string]string{"unrelated": "x"}, false},
		"wrong password":    {map[string]string{"accessKeyId": "user", "secretKey": "guess"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := task.Registry{URL: at + "/vm/disk:v1", Access: task.Access{CredentialsDir: secret(t, c.files)}}
			if c.ok {
				says(t, in, "hello")
				return
			}
			_, err := open(t.Context(), in, sourcetest.Patience)
			sourcetest.Fails(t, err, task.SourceDenied)
		})
	}
	_, err := open(t.Context(), task.Registry{URL: at + "/vm/disk:v1"}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceDenied)
}

func TestTrust(t *testing.T) {
	h := newHub()
	h.open = true
	h.push(t, "vm/disk:v1", small(t, "hello"))
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	in := task.Registry{URL: "docker://" + strings.TrimPrefix(s.URL, "https://") + "/vm/disk:v1"}
	_, err := open(t.Context(), in, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceUntrusted)
	with := in
	with.CADir = secret(t, map[string]string{"ca.pem": string(ca)})
	says(t, with, "hello")
	with = in
	with.PlainHTTP = true
	says(t, with, "hello")
	with = in
	with.Insecure = true
	says(t, with, "hello")
}

// TestPlainHTTPIsNotAGuess: the library would speak plain HTTP to any private address.
func TestPlainHTTPIsNotAGuess(t *testing.T) {
	for host, ok := range map[string]bool{"127.0.0.1": true, "localhost": true, "10.1.2.3": false, "registry.local": false} {
		for _, plain := range []bool{false, true} {
			asked := false
			g := &guard{plain: plain, name: host, base: roundTrip(func(*nethttp.Request) (*nethttp.Response, error) {
				asked = true
				return nil, io.EOF
			})}
			req, err := nethttp.NewRequestWithContext(t.Context(), "GET", "http://"+host+"/v2/", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = g.RoundTrip(req) //nolint:bodyclose // there is no answer
			if asked != (ok || plain) {
				t.Errorf("%s was asked in the clear: %t (%v)", host, asked, err)
			}
			if !asked {
				sourcetest.Fails(t, err, task.SourceUntrusted)
			}
		}
	}
}

type roundTrip func(*nethttp.Request) (*nethttp.Response, error)

func (r roundTrip) RoundTrip(q *nethttp.Request) (*nethttp.Response, error) { return r(q) }

func TestPlatform(t *testing.T) {
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"amd64", "arm64", "unknown"} {
		img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: arch, OS: "linux"})
		if err != nil {
			t.Fatal(err)
		}
		layers, err := small(t, arch).Layers()
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layers...); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	h := newHub()
	h.open = true
	at := serve(t, h)
	ref, err := name.ParseReference(strings.TrimPrefix(at, "docker://") + "/vm/disk:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ggcr.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		says(t, task.Registry{URL: at + "/vm/disk:v1", Architecture: arch}, arch)
	}
	_, err = open(t.Context(), task.Registry{URL: at + "/vm/disk:v1", Architecture: "s390x"}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceNotFound)
	if err != nil && !strings.Contains(err.Error(), "[amd64 arm64]") {
		t.Errorf("%q does not list what there is", err)
	}
	h.push(t, "vm/one:v1", small(t, "one"))
	says(t, task.Registry{URL: at + "/vm/one:v1", Architecture: "amd64"}, "one")
	_, err = open(t.Context(), task.Registry{URL: at + "/vm/one:v1", Architecture: "arm64"}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceNotFound)
}

func TestDigests(t *testing.T) {
	h := newHub()
	h.open = true
	img := small(t, "hello")
	h.push(t, "vm/disk:v1", img)
	h.push(t, "vm/disk:v2", small(t, "other"))
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	at := serve(t, h)
	says(t, task.Registry{URL: at + "/vm/disk@" + digest.String()}, "hello")
	_, err = open(t.Context(), task.Registry{URL: at + "/vm/disk@sha256:" + strings.Repeat("0", 64)}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceNotFound)
	// A registry that sends something else under that digest is caught.
	liar := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		r.URL.Path = strings.Replace(r.URL.Path, "manifests/"+digest.String(), "manifests/v2", 1)
		h.ServeHTTP(w, r)
	}))
	_, err = open(t.Context(), task.Registry{URL: liar + "/vm/disk@" + digest.String()}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceUnavailable)
}

// TestHostileManifests are those that want memory, or make no sense.
func TestHostileManifests(t *testing.T) {
	blob := []byte(`{"architecture":"amd64"}`)
	sum := sha256.Sum256(blob)
	conf := hex.EncodeToString(sum[:])
	for name, c := range map[string]struct {
		manifest string
		want     task.Reason
	}{
		"endless":     {strings.Repeat(" ", smallLimit+1), task.BadImage},
		"no JSON":     {"<html>", task.BadImage},
		"no layers":   {`{"schemaVersion":2,"config":{"digest":"sha256:` + conf + `"}}`, task.BadImage},
		"schema 1":    {`{"schemaVersion":1,"fsLayers":[{}]}`, task.BadImage},
		"huge config": {fmt.Sprintf(`{"schemaVersion":2,"config":{"digest":"sha256:%s","size":1099511627776},"layers":[{"size":1,"digest":"sha256:%s"}]}`, conf, conf), task.BadImage},
		"layer size":  {fmt.Sprintf(`{"schemaVersion":2,"config":{"digest":"sha256:%s","size":24},"layers":[{"size":99,"digest":"sha256:%s"}]}`, conf, conf), task.SourceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			at := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
				if strings.Contains(r.URL.Path, "/manifests/") {
					fmt.Fprint(w, c.manifest)
				} else if strings.Contains(r.URL.Path, "/blobs/") {
					_, _ = w.Write(blob)
				}
			}))
			_, err := open(t.Context(), task.Registry{URL: at + "/vm/disk:v1"}, sourcetest.Patience)
			sourcetest.Fails(t, err, c.want)
		})
	}
}

// TestIndexInIndexInIndex is about depth: a circle cannot be made of digests.
func TestIndexInIndexInIndex(t *testing.T) {
	h := newHub()
	h.open = true
	at := serve(t, h)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: small(t, "deep")})
	for depth := 1; depth <= indexDepth; depth++ {
		ref, err := name.ParseReference(fmt.Sprintf("%s/vm/disk:v%d", strings.TrimPrefix(at, "docker://"), depth))
		if err != nil {
			t.Fatal(err)
		}
		if err := ggcr.WriteIndex(ref, index); err != nil {
			t.Fatal(err)
		}
		in := task.Registry{URL: fmt.Sprintf("%s/vm/disk:v%d", at, depth)}
		if depth < indexDepth {
			says(t, in, "deep")
		} else {
			_, err := open(t.Context(), in, sourcetest.Patience)
			sourcetest.Fails(t, err, task.BadImage)
		}
		index = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index})
	}
}
