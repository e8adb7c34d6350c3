package receive

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// slow is a transfer to a disk that is slow to make durable what was written: it waits to be told how that ended.
type slow struct {
	*transfer.Transfer
	flushing chan struct{} // closed when that is all that is left
	ends     chan func(*task.Report)
}

func (s *slow) RunFrom(ctx context.Context, blob source.Blob) task.Report {
	r := s.Transfer.RunFrom(ctx, blob)
	if r.Outcome == task.Done {
		close(s.flushing)
		(<-s.ends)(&r)
	}
	return r
}

func (s *slow) Progress() task.Progress {
	p := s.Transfer.Progress()
	select {
	case <-s.flushing:
		p.Stage = task.Flushing
	default:
	}
	return p
}

// slowly makes a worker's disk slow.
func slowly(t *testing.T) (*worker, chan func(*task.Report)) {
	t.Helper()
	ends := make(chan func(*task.Report), 1)
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
	w.carry = func(k task.Task) carrier {
		return &slow{Transfer: transfer.New(k), flushing: make(chan struct{}), ends: ends}
	}
	return w, ends
}

func well(*task.Report) {}

func badly(reason task.Reason) func(*task.Report) {
	return func(r *task.Report) {
		r.Outcome, r.Reason, r.Detail = reason.Outcome(), reason, "fsync the disk: no luck"
	}
}

// TestAsyncAnswersBeforeTheDiskIsDurable: the answer comes when everything was taken and found good. Until the disk is
// durable nothing else can be uploaded.
func TestAsyncAnswersBeforeTheDiskIsDurable(t *testing.T) {
	image := noise(20, 2<<20+3)
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	f, _ := m.CreateFormFile("file", "disk.img")
	_, _ = f.Write(image)
	_ = m.Close()
	for path, send := range map[string]func(*worker){
		"/v1beta1/upload-async": func(w *worker) {
			w.status(t, 200, http.MethodPost, "/v1beta1/upload-async", bytes.NewReader(image))
		},
		"/v1beta1/upload-form-async": func(w *worker) {
			w.status(t, 200, http.MethodPost, "/v1beta1/upload-form-async", &form, "Content-Type", m.FormDataContentType())
		},
	} {
		t.Run(path, func(t *testing.T) {
			w, ends := slowly(t)
			w.status(t, 400, http.MethodPost, path, strings.NewReader("QFI\xfb and then nothing")) // found bad
			send(w)
			if p := w.Progress(); p.Stage != task.Flushing {
				t.Errorf("after the answer the worker is at %+v", p)
			}
			w.status(t, 503, http.MethodPost, path, strings.NewReader("another"))
			ends <- well
			w.ends(t, task.Completed)
			w.holds(t, image)
		})
	}
}

// TestTheDiskFailsAfterTheLastByte: who waits for the disk is told, and for who does not the worker's report and progress are.
func TestTheDiskFailsAfterTheLastByte(t *testing.T) {
	const wait, async = "/v1beta1/upload", "/v1beta1/upload-async"
	for _, path := range []string{wait, async} {
		t.Run(path, func(t *testing.T) {
			w, ends := slowly(t)
			send := func(want int, end func(*task.Report)) {
				if path == wait {
					ends <- end // before the request, which ends with it
				}
				w.status(t, want, http.MethodPost, path, strings.NewReader("a disk"))
				if path == async {
					ends <- end
				}
			}
			codes := map[string][2]int{wait: {400, 500}, async: {200, 200}}[path]
			send(codes[0], badly(task.DoesNotFit))
			w.says(t, "fsync the disk: no luck")
			w.turn.Lock()   // the request unlocks it right after
			w.turn.Unlock() //nolint:staticcheck // SA2001: having had it is the point
			send(codes[1], badly(task.TargetFailed))
			w.ends(t, task.TargetFailed)
		})
	}
}
