// Package image keeps the images of a cluster: an OCI layout on disk, filled from archives or built from the machine's own files,
// a registry that serves it, and the calls that make nodes pull from it. It does not build the product's images.
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"golang.org/x/sys/unix"
)

// Annotations that carry an image's name in the index of an archive.
const (
	nameAnnotation       = "org.opencontainers.image.ref.name"
	containerdAnnotation = "io.containerd.image.name"
)

// maxIndex bounds what is read into memory of an archive; a real index is a few hundred bytes per image.
const maxIndex = 4 << 20

// A Store is an OCI layout whose index names each image in full.
type Store struct{ dir string }

// Open makes the store if there is none.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, fmt.Errorf("make image store: %w", err)
	}
	if _, err := s.index(); errors.Is(err, fs.ErrNotExist) {
		return s, s.writeIndex(v1.IndexManifest{SchemaVersion: 2})
	} else if err != nil {
		return nil, err
	}
	return s, nil
}

// Names lists the images in the store.
func (s *Store) Names() ([]string, error) {
	index, err := s.index()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range index.Manifests {
		names = append(names, m.Annotations[nameAnnotation])
	}
	return names, nil
}

// AddImage puts an image into the store under that name.
func (s *Store) AddImage(name string, img v1.Image) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	before, err := s.index()
	if err != nil {
		return err
	}
	if err := layout.Path(s.dir).AppendImage(img); err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	after, err := s.index()
	if err != nil {
		return err
	}
	added := after.Manifests[len(after.Manifests)-1]
	added.Annotations = map[string]string{nameAnnotation: name}
	return s.merge(before, []v1.Descriptor{added})
}

// AddArchive puts the images of an OCI archive into the store and returns their names. The archive is checked while it is
// read: an image whose blobs are missing or differ from their digests is refused, and then the store is as it was.
func (s *Store) AddArchive(archive io.Reader) ([]string, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	index, err := s.unpack(archive)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range index.Manifests {
		m := &index.Manifests[i]
		name, err := fullName(m.Annotations)
		if err != nil {
			return nil, err
		}
		if err := s.complete(m.Digest); err != nil {
			return nil, fmt.Errorf("image %s is not complete: %w", name, err)
		}
		m.Annotations = map[string]string{nameAnnotation: name}
		names = append(names, name)
	}
	before, err := s.index()
	if err != nil {
		return nil, err
	}
	return names, s.merge(before, index.Manifests)
}

// fullName returns the image's name with its registry and tag.
func fullName(annotations map[string]string) (string, error) {
	name := annotations[containerdAnnotation]
	if name == "" {
		name = annotations[nameAnnotation]
	}
	if !strings.ContainsAny(name, "/:") {
		return "", fmt.Errorf("the archive calls an image %q; name it in full, like example.com/name:tag, in the annotation %s", name, nameAnnotation)
	}
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", name, err)
	}
	return ref.String(), nil
}

var blobPath = regexp.MustCompile(`^blobs/sha256/[0-9a-f]{64}$`)

// unpack writes the archive's blobs into the store and returns its index.
func (s *Store) unpack(archive io.Reader) (v1.IndexManifest, error) {
	var index v1.IndexManifest
	r := tar.NewReader(archive)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return index, fmt.Errorf("read archive (it must be an uncompressed tar of an OCI layout): %w", err)
		}
		name := path.Clean(header.Name)
		switch {
		case name == "index.json":
			err = json.NewDecoder(io.LimitReader(r, maxIndex)).Decode(&index)
		case blobPath.MatchString(name) && header.Typeflag == tar.TypeReg:
			err = s.writeBlob(path.Base(name), r)
		}
		if err != nil {
			return index, fmt.Errorf("read %s of archive: %w", name, err)
		}
	}
	if len(index.Manifests) == 0 {
		return index, errors.New("not an OCI archive: it has no index.json that names an image")
	}
	return index, nil
}

func (s *Store) writeBlob(hexDigest string, content io.Reader) error {
	target := s.blob(hexDigest)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	tmp, err := os.CreateTemp(s.dir, "blob-*")
	if err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(tmp, hash), content); err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != hexDigest {
		return fmt.Errorf("the content's digest is sha256:%s, not what its name says", got)
	}
	return os.Rename(tmp.Name(), target)
}

// complete checks that a manifest, and all it refers to, is in the store.
func (s *Store) complete(digest v1.Hash) error {
	refs, err := s.references(digest)
	if err != nil {
		return err
	}
	for _, r := range refs {
		if _, err := os.Stat(s.blob(r.Digest.Hex)); err != nil {
			return fmt.Errorf("blob %s is missing", r.Digest)
		}
		if r.MediaType.IsIndex() || r.MediaType.IsImage() {
			if err := s.complete(r.Digest); err != nil {
				return err
			}
		}
	}
	return nil
}

// references returns the descriptors in a manifest or an index.
func (s *Store) references(digest v1.Hash) ([]v1.Descriptor, error) {
	data, err := s.readManifest(digest)
	if err != nil {
		return nil, err
	}
	var m struct {
		Config    *v1.Descriptor  `json:"config"`
		Layers    []v1.Descriptor `json:"layers"`
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("parse manifest %s: %w", digest, err)
	}
	refs := append(m.Layers, m.Manifests...)
	if m.Config != nil {
		refs = append(refs, *m.Config)
	}
	return refs, nil
}

func (s *Store) readManifest(digest v1.Hash) ([]byte, error) {
	f, err := os.Open(s.blob(digest.Hex))
	if err != nil {
		return nil, fmt.Errorf("blob %s is missing", digest)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxIndex))
}

// merge adds descriptors to the index, each in the place of the one that had its name, and removes blobs nothing refers to.
func (s *Store) merge(index v1.IndexManifest, added []v1.Descriptor) error {
	for _, d := range added {
		index.Manifests = slices.DeleteFunc(index.Manifests, func(old v1.Descriptor) bool {
			return old.Annotations[nameAnnotation] == d.Annotations[nameAnnotation]
		})
		index.Manifests = append(index.Manifests, d)
	}
	if err := s.writeIndex(index); err != nil {
		return err
	}
	garbage, err := layout.Path(s.dir).GarbageCollect()
	if err != nil {
		return fmt.Errorf("look for unused blobs: %w", err)
	}
	for _, g := range garbage {
		if err := os.Remove(s.blob(g.Hex)); err != nil {
			return fmt.Errorf("remove unused blob: %w", err)
		}
	}
	return nil
}

func (s *Store) index() (v1.IndexManifest, error) {
	var index v1.IndexManifest
	data, err := os.ReadFile(filepath.Join(s.dir, "index.json"))
	if err != nil {
		return index, fmt.Errorf("read image store: %w", err)
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return index, fmt.Errorf("parse image store's index (remove %s to start afresh): %w", s.dir, err)
	}
	return index, nil
}

func (s *Store) writeIndex(index v1.IndexManifest) error {
	data, err := json.Marshal(index)
	if err != nil {
		return fmt.Errorf("encode index: %w", err)
	}
	for name, content := range map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": data} {
		file := filepath.Join(s.dir, name)
		if err := os.WriteFile(file+".new", content, 0o644); err != nil {
			return fmt.Errorf("write image store: %w", err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			return fmt.Errorf("write image store: %w", err)
		}
	}
	return nil
}

func (s *Store) blob(hexDigest string) string {
	return filepath.Join(s.dir, "blobs", "sha256", hexDigest)
}

// lock keeps two commands from changing the store at once.
func (s *Store) lock() (func(), error) {
	f, err := os.OpenFile(filepath.Join(s.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock image store: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock image store: %w", err)
	}
	return func() { f.Close() }, nil
}
