package image

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var (
	manifestURL = regexp.MustCompile(`^/v2/(.+)/manifests/([^/]+)$`)
	blobURL     = regexp.MustCompile(`^/v2/(.+)/blobs/sha256:([0-9a-f]{64})$`)
)

// ServeHTTP is the pull side of the OCI distribution protocol over the store. containerd asks it in the place of every registry,
// and tells in the query which one it means; asked directly, any registry's image of that path will do.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "this registry only serves; use `kubebox load`", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/v2/" || r.URL.Path == "/v2" {
		w.WriteHeader(http.StatusOK)
		return
	}
	if m := blobURL.FindStringSubmatch(r.URL.Path); m != nil {
		w.Header().Set("Docker-Content-Digest", "sha256:"+m[2])
		w.Header().Set("Content-Type", "application/octet-stream")
		s.serveBlob(w, r, m[2])
		return
	}
	if m := manifestURL.FindStringSubmatch(r.URL.Path); m != nil {
		s.serveManifest(w, r, m[1], m[2])
		return
	}
	http.NotFound(w, r)
}

func (s *Store) serveManifest(w http.ResponseWriter, r *http.Request, repository, ref string) {
	digest, err := v1.NewHash(ref)
	if err != nil {
		var found bool
		if digest, found = s.resolve(r.URL.Query().Get("ns"), repository, ref); !found {
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"this image was not loaded into the cluster"}]}`, http.StatusNotFound)
			return
		}
	}
	data, err := s.readManifest(digest)
	if err != nil {
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such manifest"}]}`, http.StatusNotFound)
		return
	}
	kind := struct {
		MediaType string `json:"mediaType"`
	}{"application/vnd.oci.image.manifest.v1+json"}
	_ = json.Unmarshal(data, &kind) // what is not a manifest keeps the default and is refused by the client
	w.Header().Set("Content-Type", kind.MediaType)
	w.Header().Set("Docker-Content-Digest", digest.String())
	s.serveBlob(w, r, digest.Hex)
}

func (s *Store) resolve(registry, repository, tag string) (v1.Hash, bool) {
	index, err := s.index()
	if err != nil {
		return v1.Hash{}, false
	}
	for _, m := range index.Manifests {
		named, err := reference.ParseDockerRef(m.Annotations[nameAnnotation])
		if err != nil || reference.Path(named) != repository || registry != "" && reference.Domain(named) != registry {
			continue
		}
		if tagged, ok := named.(reference.Tagged); ok && tagged.Tag() == tag {
			return m.Digest, true
		}
	}
	return v1.Hash{}, false
}

func (s *Store) serveBlob(w http.ResponseWriter, r *http.Request, hexDigest string) {
	if strings.ContainsRune(hexDigest, filepath.Separator) {
		http.NotFound(w, r)
		return
	}
	f, err := os.Open(s.blob(hexDigest))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", info.ModTime(), f)
}
