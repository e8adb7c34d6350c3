package transfer

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/encode"
)

// staged serves the disk of a history in stages: the whole disk, then what changed.
type staged struct {
	*history
	files map[string][]byte
	names []string
	path  string // of the disk that they are brought to
	url   string
	left  atomic.Int64 // how many bytes are served before the worker is interrupted
	stop  context.CancelFunc
}

// counted interrupts the worker when enough was served.
type counted struct {
	http.ResponseWriter
	s *staged
}

func (c counted) Write(p []byte) (int, error) {
	if c.s.left.Add(-int64(len(p))) < 0 {
		c.s.stop()
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

func newStages(t *testing.T, size int, seed uint64) *staged {
	s := &staged{history: newHistory(t, size, seed), files: map[string][]byte{}, path: filepath.Join(t.TempDir(), "disk.img")}
	s.left.Store(math.MaxInt64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := s.files[strings.TrimPrefix(r.URL.Path, "/disks/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", `"`+sumOf(p)+`"`)
		http.ServeContent(counted{w, s}, r, "", time.Time{}, bytes.NewReader(p))
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/disks/"
	return s
}

// add serves the disk as it is now as the next stage. The first is raw.
func (s *staged) add(name string) {
	s.t.Helper()
	d := s.source()
	if len(s.names) == 0 {
		s.files[name] = bytes.Clone(s.disk)
	} else {
		changed := s.changed
		d.Below = &encode.Below{Name: s.names[len(s.names)-1], Changed: func(_ context.Context, from, to int64) ([][2]int64, error) {
			var in [][2]int64
			for b := from / block; b*block < to; b++ {
				if changed[b] {
					in = append(in, [2]int64{b * block, 1})
				}
			}
			return in, nil
		}}
		image, err := encode.QCOW2(s.t.Context(), d.Disk)
		if err != nil {
			s.t.Fatal(err)
		}
		if s.files[name], err = io.ReadAll(io.NewSectionReader(image, 0, image.Size())); err != nil {
			s.t.Fatal(err)
		}
	}
	s.changed = map[int64]bool{}
	s.names = append(s.names, name)
}

// task is the n-th stage.
func (s *staged) task(n int) task.Task {
	k := fromURL(s.url+s.names[n], s.path)
	k.Claim, k.Checkpoint, k.Target.Size = "claim", &task.Checkpoint{Current: s.names[n]}, 32<<20
	if n > 0 {
		k.Checkpoint.Previous = s.names[n-1]
	}
	return k
}

func (s *staged) run(n int) {
	s.t.Helper()
	if r := New(s.task(n)).Run(s.t.Context()); r.Outcome != task.Done {
		s.t.Fatalf("stage %d: %+v", n, r)
	}
}

// TestStages brings a disk in stages while it is written to: after each the copy is the disk of that moment, whatever it was at before, and a
// stage that is asked for again changes nothing.
func TestStages(t *testing.T) {
	s := newStages(t, 12<<20, 7)
	s.write(40)
	for n, name := range []string{"full.img", "1.qcow2", "2.qcow2", "3.qcow2", "last.qcow2"} {
		if n == 2 {
			s.grow(3<<20 + 512)
		}
		s.add(name)
		s.run(n)
		wantMoment(t, s.path, s.disk)
		if n > 0 {
			if r := New(s.task(n)).Run(t.Context()); r.Outcome != task.Done || r.Written != 0 {
				t.Errorf("stage %d again: %+v", n, r)
			}
		}
		s.write(10)
	}
}

// TestStageInterrupted breaks a stage off in many places. The next try completes it.
func TestStageInterrupted(t *testing.T) {
	s := newStages(t, 24<<20, 8)
	s.write(60)
	s.add("full.img")
	s.run(0)
	s.write(80)
	s.add("1.qcow2")
	size := int64(len(s.files["1.qcow2"]))
	for part := int64(1); part < 20; part++ {
		ctx, cancel := context.WithCancel(t.Context())
		s.stop = cancel
		s.left.Store(size * part / 20)
		if r := New(s.task(1)).Run(ctx); r.Outcome == task.Done {
			t.Errorf("a stage was brought with %d of 20 parts of its file", part)
		}
		cancel()
	}
	s.left.Store(math.MaxInt64)
	s.run(1)
	wantMoment(t, s.path, s.disk)
}

// TestWrongStages: a stage that does not belong on the disk changes nothing of it.
func TestWrongStages(t *testing.T) {
	s := newStages(t, 8<<20, 9)
	s.write(20)
	s.add("full.img")
	s.run(0)
	whole := bytes.Clone(s.disk)
	s.write(10)
	s.add("1.qcow2")
	s.write(10)
	s.add("2.qcow2")
	smaller := newStages(t, 4<<20, 9)
	smaller.write(1)
	smaller.add("full.img")
	smaller.write(1)
	smaller.add("1.qcow2")
	first, second := s.files["1.qcow2"], s.files["2.qcow2"]
	for what, c := range map[string]struct {
		file []byte // of stage 1
		do   func(*task.Task)
		says string
	}{
		"of a later stage":           {second, nil, `increment over "1.qcow2"`},
		"one is left out":            {first, func(k *task.Task) { k.Checkpoint.Previous, k.Checkpoint.Current = "1.qcow2", "2.qcow2" }, `the disk is at checkpoint "full.img"`},
		"cut off":                    {first[:len(first)/2], nil, "truncated"},
		"no qcow2":                   {whole, nil, "qcow2"},
		"of a disk that was smaller": {smaller.files["1.qcow2"], nil, "became smaller"},
		"of another claim":           {first, func(k *task.Task) { k.Claim = "other" }, "nothing says"},
		"no disk there":              {first, func(k *task.Task) { k.Target.Path = filepath.Join(t.TempDir(), "disk.img") }, "nothing says"},
		"too large for its claim":    {grown(t, s), func(k *task.Task) { k.Target.Size = 8 << 20 }, "A larger PVC is required"},
		"with a checksum":            {first, func(k *task.Task) { k.Checksum = sumOf(first) }, "without a checksum"},
	} {
		s.files["1.qcow2"] = c.file
		k := s.task(1)
		if c.do != nil {
			c.do(&k)
		}
		if r := New(k).Run(t.Context()); r.Outcome == task.Done || !strings.Contains(r.Detail, c.says) {
			t.Errorf("%s: want %q: %+v", what, c.says, r)
		}
		wantMoment(t, s.path, whole)
	}
	s.files["1.qcow2"] = first
	s.run(1)
	s.files["2.qcow2"] = second
	s.run(2)
	wantMoment(t, s.path, s.disk)
}

// grown is a stage of the disk after it became larger.
func grown(t *testing.T, s *staged) []byte {
	t.Helper()
	larger := *s.history
	larger.grow(40 << 20)
	d := larger.source()
	d.Below = &encode.Below{Name: "full.img", Changed: func(context.Context, int64, int64) ([][2]int64, error) { return nil, nil }}
	image, err := encode.QCOW2(t.Context(), d.Disk)
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(io.NewSectionReader(image, 0, image.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStageChangedMeanwhile: a stage of which a part is written is not replaced by one that changes other places: what the first one wrote
// there would stay.
func TestStageChangedMeanwhile(t *testing.T) {
	s := newStages(t, 8<<20, 10)
	s.write(20)
	s.add("full.img")
	s.run(0)
	s.write(10)
	s.add("1.qcow2")
	note := filepath.Join(filepath.Dir(s.path), ".disk.img.berth-stage")
	if err := os.WriteFile(note, []byte(`{"claim":"claim","checkpoint":"full.img","virtual":8388608,"next":"1.qcow2","places":"other"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := New(s.task(1)).Run(t.Context()); r.Reason != task.SourceChanged || !strings.Contains(r.Detail, "bring back the file") {
		t.Errorf("%+v", r)
	}
}
