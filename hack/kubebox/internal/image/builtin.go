package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Pause returns the image of a pod's sandbox. It only has to sleep until it is stopped, which Debian's busybox can.
func Pause(busybox string) (v1.Image, error) {
	script := "trap 'exit 0' TERM INT; while :; do /bin/busybox sleep 2147483647 & wait $!; done"
	return build(busybox, nil, v1.Config{Entrypoint: []string{"/bin/busybox", "sh", "-c", script}})
}

// Busybox returns the image everyone calls busybox, made of Debian's static one.
func Busybox(busybox string) (v1.Image, error) {
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets of %s: %w", busybox, err)
	}
	return build(busybox, strings.Fields(string(out)), v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin"}})
}

// build makes an image of one layer: busybox, links to it, and the few files that a system is expected to have.
func build(busybox string, applets []string, config v1.Config) (v1.Image, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("read busybox: %w", err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	headers := []*tar.Header{}
	for _, dir := range []string{"bin/", "etc/", "tmp/", "root/", "var/", "proc/", "dev/", "sys/"} {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		headers = append(headers, &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode})
	}
	for _, a := range applets {
		if a != "busybox" {
			headers = append(headers, &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox", Mode: 0o777})
		}
	}
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write layer: %w", err)
		}
	}
	files := []struct {
		name    string
		mode    int64
		content []byte
	}{
		{"bin/busybox", 0o755, program},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n")},
	}
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return nil, fmt.Errorf("write layer: %w", err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("write layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	return assemble(layer.Bytes(), config)
}

func assemble(layer []byte, config v1.Config) (v1.Image, error) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, l)
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config, file.Created = "amd64", "linux", config, v1.Time{Time: time.Unix(0, 0).UTC()}
	return mutate.ConfigFile(img, file)
}
