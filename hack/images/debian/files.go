package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
)

// Files calls visit for every entry of a .deb, in its order. The entry's name is cleaned: no leading "./" or "/", no trailing slash; the
// root itself is left out. The reader is valid during the call only.
func Files(ctx context.Context, deb string, visit func(h *tar.Header, content io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("open %s: %w", deb, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("open %s: %w", deb, err)
	}
	err = visitTar(out, visit)
	if err != nil {
		cancel() // the rest is not wanted; without this dpkg-deb would wait for a reader for ever
	}
	if wait := cmd.Wait(); err == nil && wait != nil {
		err = fmt.Errorf("%w: %s", wait, tail(stderr.String()))
	}
	if errors.Is(err, ErrEnough) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", deb, err)
	}
	return nil
}

// ErrEnough is returned by visit when it has seen all it wants; Files then ends without an error.
var ErrEnough = errors.New("enough")

func visitTar(r io.Reader, visit func(h *tar.Header, content io.Reader) error) error {
	entries := tar.NewReader(r)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // the padding at the end, so that the writer is not left with it
			return err
		}
		if err != nil {
			return err
		}
		h.Name = path.Clean("/" + h.Name)[1:]
		if h.Name == "" {
			continue
		}
		if err := visit(h, entries); err != nil {
			return err
		}
	}
}
