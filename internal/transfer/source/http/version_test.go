package http

import (
	"bytes"
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
)

// TestWeakVersions: a source that cannot tell its versions apart says so, and is asked twice before its ranges are trusted.
func TestWeakVersions(t *testing.T) {
	content := sourcetest.Content(1, 100_000)
	now := time.Now()
	for name, row := range map[string]struct {
		modified time.Time
		etag     string
		weak     string
		probes   int64
		ifRange  bool
	}{
		"tag":              {time.Time{}, `"1"`, "", 1, true},
		"tag, just now":    {now, `"1"`, "", 1, true},
		"weak tag":         {time.Time{}, `W/"1"`, "neither a strong ETag nor a time", 2, false},
		"nothing":          {time.Time{}, "", "neither a strong ETag nor a time", 2, false},
		"just now":         {now, "", "changed within the last minute", 2, false},
		"59 s ago":         {now.Add(-57 * time.Second), "", "changed within the last minute", 2, false},
		"in the future":    {now.Add(time.Hour), "", "changed within the last minute", 2, false},
		"two minutes ago":  {now.Add(-2 * time.Minute), "", "", 2, true},
		"weak tag and old": {epoch, `W/"1"`, "", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			var last atomic.Pointer[nethttp.Header]
			s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
				asked.Add(1)
				h := r.Header.Clone()
				last.Store(&h)
				if row.etag != "" {
					w.Header().Set("ETag", row.etag)
				}
				nethttp.ServeContent(w, r, "", row.modified, bytes.NewReader(content))
			})
			b := get(t, task.HTTP{URL: s.URL})
			if got := b.Info(); !got.Ranged || !strings.Contains(got.Weak, row.weak) || row.weak == "" && got.Weak != "" {
				t.Errorf("the source is %+v, want weak because of %q", got, row.weak)
			}
			if asked.Load() != row.probes {
				t.Errorf("it was asked %d times, want %d", asked.Load(), row.probes)
			}
			sourcetest.Same(t, b, 500, 1000, content[500:1500])
			if got := last.Load().Get("If-Range"); (got != "") != row.ifRange {
				t.Errorf("a range carries If-Range %q", got)
			}
		})
	}
}

// TestSecondProbeDisagrees: what changes under our eyes is read in one piece, and the piece is of one state.
func TestSecondProbeDisagrees(t *testing.T) {
	var asked atomic.Int64
	versions := [][]byte{sourcetest.Content(1, 100_000), sourcetest.Content(2, 100_001), sourcetest.Content(3, 100_002), sourcetest.Content(4, 100_003)}
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		n := min(int(asked.Add(1)), len(versions)) - 1
		nethttp.ServeContent(w, r, "", time.Time{}, bytes.NewReader(versions[n]))
	})
	b := get(t, task.HTTP{URL: s.URL})
	if b.Info().Ranged {
		t.Error("its ranges are trusted")
	}
	sourcetest.Same(t, b, 0, -1, versions[2]) // the answer to the third request, whole
}

// TestTimesThatAreNotUnderstood: a server that answers If-Range with everything is read in ranges without it.
func TestTimesThatAreNotUnderstood(t *testing.T) {
	content := sourcetest.Content(1, 100_000)
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.Header.Get("If-Range") != "" {
			r.Header.Del("Range")
		}
		nethttp.ServeContent(w, r, "", epoch, bytes.NewReader(content))
	})
	b := get(t, task.HTTP{URL: s.URL})
	if !b.Info().Ranged || b.Info().Weak != "" {
		t.Errorf("the source is %+v", b.Info())
	}
	sourcetest.Same(t, b, 500, 1000, content[500:1500])
}
