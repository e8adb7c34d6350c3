package registry

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/internal/task"
)

// image has the needed fields of a manifest and its configuration.
type image struct {
	digest string // of the manifest
	layers []v1.Descriptor
	labels map[string]string
	config *v1.ConfigFile
}

// platform is the wanted architecture of an image; by default it is this machine's, if there is a choice.
type platform struct {
	arch   string
	advice string // what to do if there is no such image
}

// asked returns the platform that a task names.
func asked(arch string) platform {
	return platform{arch: arch, advice: "; set platform.architecture to the one that is meant"}
}

// indexDepth bounds indexes of indexes, which may go in a circle only by breaking SHA-256, but may be deep.
const indexDepth = 4

// resolve chooses the image for a platform.
func resolve(ctx context.Context, s store, name string, p platform) (*image, error) {
	digest := ""
	for range indexDepth {
		text, err := s.manifest(ctx, digest)
		if err != nil {
			return nil, err
		}
		index, err := v1.ParseIndexManifest(bytes.NewReader(text))
		if err != nil {
			return nil, task.Errorf(task.BadImage, "%s: its manifest is no JSON: %w", name, err)
		}
		if len(index.Manifests) == 0 {
			return read(ctx, s, name, p, text)
		}
		next, err := choose(index.Manifests, name, p)
		if err != nil {
			return nil, err
		}
		digest = next.Digest.String()
	}
	return nil, task.Errorf(task.BadImage, "%s: more than %d indexes inside each other", name, indexDepth)
}

// choose picks the entry of an index for a platform.
func choose(entries []v1.Descriptor, name string, p platform) (v1.Descriptor, error) {
	var known []v1.Descriptor
	var offered []string
	for _, d := range entries {
		if d.Platform != nil && (d.Platform.OS == "unknown" || d.Platform.Architecture == "unknown") {
			continue // what build tools attest about the others
		}
		known = append(known, d)
		if d.Platform != nil {
			offered = append(offered, d.Platform.Architecture)
		}
	}
	want := p.arch
	if want == "" {
		want = runtime.GOARCH
	}
	for _, d := range known {
		if d.Platform != nil && d.Platform.Architecture == want && (d.Platform.OS == "linux" || d.Platform.OS == "") {
			return d, nil
		}
	}
	if len(known) == 1 && (p.arch == "" || known[0].Platform == nil) {
		return known[0], nil
	}
	slices.Sort(offered)
	return v1.Descriptor{}, task.Errorf(task.SourceNotFound, "%s has no image for the architecture %s: it offers [%s]%s", name, want,
		strings.Join(slices.Compact(offered), " "), p.advice)
}

// read reads an image's manifest and configuration.
func read(ctx context.Context, s store, name string, p platform, text []byte) (*image, error) {
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil || m.SchemaVersion != 2 || len(m.Layers) == 0 {
		return nil, task.Errorf(task.BadImage, "%s: its manifest has no layers; images of Docker's first schema must be "+
			"pushed again", name)
	}
	digest, _, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("digest of the manifest of %s: %w", name, err)
	}
	raw, err := s.config(ctx, m.Config)
	if err != nil {
		return nil, err
	}
	conf, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, task.Errorf(task.BadImage, "%s: its configuration is no JSON: %w", name, err)
	}
	if p.arch != "" && conf.Architecture != "" && conf.Architecture != p.arch {
		return nil, task.Errorf(task.SourceNotFound, "%s has no image for the architecture %s: it is one for %s%s", name, p.arch,
			conf.Architecture, p.advice)
	}
	return &image{digest: digest.String(), layers: m.Layers, labels: labels(conf.Config.Env), config: conf}, nil
}

// The form of labels: RFC 1123 names before the slash, and a name and a value of at most 63 characters.
var (
	labelPrefix = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*kubevirt\.io$`)
	labelName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelValue  = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// labels makes labels of the environment: INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=x becomes
// instancetype.kubevirt.io/default-preference: x. What would be no label is left out, because an API server refuses the
// whole claim for the sake of one.
func labels(env []string) map[string]string {
	const domain = "KUBEVIRT_IO_"
	found := map[string]string{}
	for _, e := range env {
		key, value, ok := strings.Cut(e, "=")
		before, after, hit := strings.Cut(key, domain)
		if !ok || !hit {
			continue
		}
		prefix := strings.ToLower(strings.ReplaceAll(before, "_", ".")) + "kubevirt.io"
		name := strings.ToLower(strings.ReplaceAll(after, "_", "-"))
		if len(prefix) <= 253 && labelPrefix.MatchString(prefix) && labelName.MatchString(name) && labelValue.MatchString(value) {
			found[prefix+"/"+name] = value
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}
