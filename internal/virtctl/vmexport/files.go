package vmexport

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Files is the directory of a claim, as an export of it serves it.
type Files struct {
	// With URL, Cert and Token other programs in the cluster can read the files too, as long as the export exists.
	URL, Cert, Token string
	way              *way
}

// OfClaim makes an export of a claim that has files, calls use with them, and deletes the export unless it is to be kept.
func OfClaim(ctx context.Context, c *kube.Client, o Options, claim string, out io.Writer, use func(*Files) error) error {
	group := ""
	o.Source = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: export.Claim, Name: claim}
	o.Annotations = maps.Clone(o.Annotations)
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[names.ExportFiles] = "true"
	r := &run{Options: o, cluster: c, out: out}
	return r.within(ctx, func() error {
		e, err := r.ready(ctx)
		if err != nil {
			return err
		}
		l, err := r.find(e, export.Directory)
		if err != nil {
			return err
		}
		if err := r.open(ctx, e, &l); err != nil {
			return err
		}
		w, err := r.wayTo(ctx, l)
		if err != nil {
			return err
		}
		defer w.close()
		return use(&Files{URL: strings.TrimSuffix(l.url, "/"), Cert: l.cert, Token: l.token, way: w})
	})
}

// Read reads a file, or the list of a directory if the path ends with a slash, of at most so many bytes.
func (f *Files) Read(ctx context.Context, path string, most int64) ([]byte, error) {
	at, err := url.Parse(f.URL)
	if err != nil {
		return nil, fmt.Errorf("read the address of the export: %w", err)
	}
	answer, err := f.way.get(ctx, http.MethodGet, at.JoinPath(path).String(), 0, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, asReason(err))
	}
	defer answer.Body.Close() // it is read to its end, or not needed any more
	p, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(p)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return p, nil
}

// asReason gives an answer "there is no such file" the reason that says so.
func asReason(err error) error {
	if no, ok := err.(*refused); ok && no.code == http.StatusNotFound { //nolint:errorlint // get returns it as it is
		return task.Errorf(task.SourceNotFound, "there is no such file")
	}
	return err
}
