package registry

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/berth-vm/berth/internal/task"
)

// place is a parsed URL: ref in a registry, or the path of an archive.
type place struct {
	ref  name.Reference
	path string
}

func (p place) String() string {
	if p.path != "" {
		return "oci-archive://" + p.path
	}
	return "docker://" + p.ref.Name()
}

// parse reads docker://host/name[:tag][@digest] and oci-archive:///path.
func parse(raw string, plain bool) (place, error) {
	if path, ok := strings.CutPrefix(raw, "oci-archive://"); ok {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			return place{}, task.Errorf(task.BadTask, "%q is no oci-archive:///absolute/path", raw)
		}
		return place{path: filepath.Clean(path)}, nil
	}
	text, ok := strings.CutPrefix(raw, "docker://")
	if !ok {
		return place{}, task.Errorf(task.BadTask, "%q is no registry source: want docker://host/name:tag or "+
			"oci-archive:///path", raw)
	}
	var options []name.Option
	if plain {
		options = append(options, name.Insecure)
	}
	ref, err := name.ParseReference(text, options...)
	if err != nil {
		var bad *name.ErrBadName
		if errors.As(err, &bad) {
			return place{}, task.Errorf(task.BadTask, "%q names no image: %w", raw, err)
		}
		return place{}, task.Errorf(task.BadTask, "parse %q: %w", raw, err)
	}
	return place{ref: ref}, nil
}
