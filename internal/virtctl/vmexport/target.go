package vmexport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/transfer/readahead"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// errTarget is about what no other try would change.
var errTarget = errors.New("cannot download")

// target is the file that a download is written to. A file is called FILE.part until it is whole; beside it is FILE.part.etag, by
// which the server says whether the rest still belongs to what is there.
type target struct {
	path string   // empty: standard output
	file *os.File // nil: standard output
	out  io.Writer

	at     int64  // how much is there
	tag    string // of what; empty: it cannot be continued
	sparse bool   // zeroes are left out
}

func (t *target) part() string { return t.path + ".part" }
func (t *target) mark() string { return t.path + ".part.etag" }

func newTarget(path string, standard io.Writer) (*target, error) {
	if path == "-" {
		return &target{out: standard}, nil
	}
	t := &target{path: path}
	f, err := os.OpenFile(t.part(), os.O_RDWR|os.O_CREATE, 0o644) // as any file that the user makes
	if err != nil {
		return nil, err // it names the file and what was attempted
	}
	t.file = f
	if tag, err := os.ReadFile(t.mark()); err == nil {
		if info, err := f.Stat(); err == nil && info.Size() > 0 {
			t.at, t.tag = info.Size(), string(tag)
		}
	}
	return t, nil
}

// begin prepares for the server's answer: the rest of the file, or all of it.
func (t *target) begin(answer *http.Response, format export.Format) error {
	t.sparse = format == export.Raw && t.file != nil
	if answer.StatusCode == http.StatusPartialContent {
		return nil
	}
	if t.file == nil {
		if t.at > 0 {
			return fmt.Errorf("%w: the volume changed, and %d bytes of what it was are written", errTarget, t.at)
		}
		t.tag = rangeTag(answer)
		return nil
	}
	t.at, t.tag = 0, rangeTag(answer)
	err := t.file.Truncate(0)
	if err == nil && t.tag != "" {
		err = os.WriteFile(t.mark(), []byte(t.tag), 0o600)
	} else if err == nil {
		err = removed(t.mark())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errTarget, err)
	}
	return nil
}

// rangeTag returns what a later request for the rest names; empty if there is none to be had.
func rangeTag(answer *http.Response) string {
	if answer.Header.Get("Accept-Ranges") != "bytes" {
		return ""
	}
	return answer.Header.Get("ETag")
}

// copy writes what comes. Whether that is all of it, its length says.
func (t *target) copy(from io.Reader, reached func(int64)) error {
	var failed error
	err := readahead.Copy(from, func(p []byte) error {
		if failed = t.write(p); failed != nil {
			return failed
		}
		if t.file != nil {
			readahead.ToDisk(t.file, t.at, int64(len(p)))
		}
		t.at += int64(len(p))
		reached(t.at)
		return nil
	})
	switch {
	case failed != nil:
		return fmt.Errorf("%w: %w", errTarget, failed)
	case err != nil:
		return fmt.Errorf("receive the volume: %w", err)
	}
	return nil
}

func (t *target) write(p []byte) error {
	if t.file == nil {
		_, err := t.out.Write(p)
		return err
	}
	if !t.sparse {
		_, err := t.file.WriteAt(p, t.at)
		return err
	}
	for at := t.at; len(p) > 0; {
		n, zero := zeropage.Run(p, at)
		if !zero {
			if _, err := t.file.WriteAt(p[:n], at); err != nil {
				return err
			}
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// end gives a file its name if it is whole, and otherwise leaves what is there for the next time, if that can use it.
func (t *target) end(whole bool) error {
	if t.file == nil {
		return nil
	}
	var err error
	if whole || t.tag != "" {
		err = t.file.Truncate(t.at) // zeroes at its end were not written
	}
	if whole {
		err = errors.Join(err, t.file.Sync())
	}
	err = errors.Join(err, t.file.Close())
	switch {
	case err != nil:
	case whole:
		err = errors.Join(os.Rename(t.part(), t.path), removed(t.mark()))
	case t.tag == "" || t.at == 0:
		err = errors.Join(removed(t.part()), removed(t.mark()))
	}
	return err
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
