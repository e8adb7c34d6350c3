package main

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	distribution "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// hub is a registry that wants TLS and, if it has a user, that user's password.
type hub struct {
	user    string
	refuses func(*http.Request) bool
}

// serve starts a registry; it returns its host and a file with its authority.
func (h hub) serve(t *testing.T) (host, authority string) {
	t.Helper()
	inner := distribution.New(distribution.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case h.user != "" && (user != h.user || password != "secret"):
			w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are\nyou"}]}`)
		case h.refuses != nil && h.refuses(r):
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"errors":[{"code":"DENIED","message":"this path is not yours"}]}`)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	authority = filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(server.URL, "https://"), authority
}

// login writes the file that docker login writes, or nothing if user is empty.
func login(t *testing.T, host, user, password string) {
	t.Helper()
	dir := t.TempDir()
	if user != "" {
		auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, auth)
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("HOME", dir) // where podman's would be
	t.Setenv("XDG_RUNTIME_DIR", dir)
}

// pushed checks that a registry has every image, for every architecture, under version and digest.
func pushed(t *testing.T, r *registry, all []image) {
	t.Helper()
	trip, err := r.transport()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		repository, err := r.repository(i.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range []name.Reference{repository.Tag("v1.2.3"), repository.Digest(i.digest.String())} {
			index, err := remote.Index(ref, remote.WithTransport(trip))
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := index.IndexManifest()
			if err != nil || len(manifest.Manifests) != 2 {
				t.Fatalf("%s has %+v (%v)", ref, manifest, err)
			}
			for _, d := range manifest.Manifests {
				one, err := index.Image(d.Digest)
				if err != nil {
					t.Fatal(err)
				}
				layers, err := one.Layers()
				if err != nil {
					t.Fatal(err)
				}
				content, err := layers[0].Compressed()
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(content); err != nil || !strings.HasSuffix(string(text), d.Platform.Architecture) {
					t.Errorf("%s for %s has %q (%v)", ref, d.Platform.Architecture, text, err)
				}
			}
		}
	}
}

func TestPush(t *testing.T) {
	m := testRelease(t)
	all, err := readImages(m.dist)
	if err != nil {
		t.Fatal(err)
	}
	host, authority := hub{}.serve(t)
	login(t, host, "", "")
	r := &registry{path: host + "/team/berth", authority: authority}
	for range 2 { // again, as after an interruption
		var out bytes.Buffer
		if err := r.push(t.Context(), all, &out); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%s/team/berth/berth:v1.2.3 %s\n", host, all[0].digest)
		if !strings.HasPrefix(out.String(), want) || strings.Count(out.String(), "\n") != 3 {
			t.Errorf("push says %q, want first %q", out.String(), want)
		}
	}
	pushed(t, r, all)
}

func TestPushWithCredentials(t *testing.T) {
	m := testRelease(t)
	all, err := readImages(m.dist)
	if err != nil {
		t.Fatal(err)
	}
	host, authority := hub{user: "me"}.serve(t)
	r := &registry{path: host + "/berth", authority: authority}
	login(t, host, "me", "secret")
	if err := r.push(t.Context(), all, io.Discard); err != nil {
		t.Fatal(err)
	}
}

// Whatever a registry has against a push is one line that says who refused what.
func TestRefusedPush(t *testing.T) {
	m := testRelease(t)
	all, err := readImages(m.dist)
	if err != nil {
		t.Fatal(err)
	}
	locked, trusted := hub{user: "me"}.serve(t)
	denied, also := hub{refuses: func(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }}.serve(t)
	open, _ := hub{}.serve(t)
	clear := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a registry without TLS was told %s %s", r.Method, r.URL)
	}))
	defer clear.Close()
	inClear := strings.TrimPrefix(clear.URL, "http://")
	for about, c := range map[string]struct {
		r              registry
		user, password string
		want           string
	}{
		"no credentials": {registry{path: locked + "/a", authority: trusted}, "", "",
			"registry " + locked + " wants other credentials for a/berth (status 401): log in with docker login " + locked + " or the like"},
		"wrong credentials": {registry{path: locked + "/a", authority: trusted}, "me", "wrong",
			"registry " + locked + " wants other credentials for a/berth (status 401): log in with docker login " + locked + " or the like"},
		"not allowed": {registry{path: denied + "/a", authority: also}, "", "", "registry " + denied + " refuses a/berth: status 403, DENIED this path is not yours"},
		"no TLS":      {registry{path: inClear + "/a"}, "", "", "push " + inClear + "/a/berth:v1.2.3: "},
		"unknown authority": {registry{path: open + "/a"}, "", "",
			"registry " + open + " has a certificate of an authority that this machine does not trust: name it with -ca FILE (CA=FILE)"},
		"no path":      {registry{path: "example.com"}, "", "", `"example.com" is no registry: name host and path, such as registry.example.com/berth (REGISTRY=HOST/PATH)`},
		"no registry":  {registry{}, "", "", `"" is no registry: name host and path, such as registry.example.com/berth (REGISTRY=HOST/PATH)`},
		"bad path":     {registry{path: "example.com/Upper"}, "", "", `"example.com/Upper" is no registry`},
		"no such file": {registry{path: open + "/a", authority: "/none"}, "", "", "read the authorities to trust: open /none: no such file or directory"},
	} {
		t.Run(about, func(t *testing.T) {
			login(t, locked, c.user, c.password)
			err := c.r.push(t.Context(), all, io.Discard)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// A manifest for another registry differs in nothing but where its images are.
func TestManifestForARegistry(t *testing.T) {
	m, _ := made(t)
	all, err := readImages(m.dist)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := writeManifest(m.dist, whole, registry{path: "registry.example.com/berth"}, &out); err != nil {
		t.Fatal(err)
	}
	back := out.String()
	for _, i := range all {
		back = strings.ReplaceAll(back, "registry.example.com/berth/"+i.name+"@", "berth.dev/"+i.name+"@")
	}
	if back != read(t, m, "berth.yaml") || out.String() == back {
		t.Error("the manifest for a registry differs in more than the registry, or in nothing")
	}
	if err := writeManifest(t.TempDir(), whole, registry{path: "registry.example.com/berth"}, io.Discard); err == nil || !strings.Contains(err.Error(), "make release") {
		t.Errorf("without a release: %v", err)
	}
}
