package receive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// noise is bytes that nothing compresses, the same for a seed.
func noise(seed uint64, n int) []byte {
	p := make([]byte, n)
	var key [32]byte
	key[0] = byte(seed)
	_, _ = rand.NewChaCha8(key).Read(p)
	return p
}

// worker is a server on its own, over one target.
type worker struct {
	*Server
	url    string
	target string
	stop   context.CancelFunc
	report chan task.Report
}

func serve(t *testing.T, target string, change func(*task.Task)) *worker {
	t.Helper()
	k := task.Task{
		Version: task.Version, Volume: "test", Source: task.Source{Upload: &task.Upload{Listen: "127.0.0.1:0"}},
		Target: task.Target{Path: target, Content: task.Disk},
	}
	if change != nil {
		change(&k)
	}
	ctx, stop := context.WithCancel(t.Context())
	w := &worker{Server: New(k), target: target, stop: stop, report: make(chan task.Report, 1)}
	w.Every = 10 * time.Millisecond
	ready := make(chan net.Addr, 1)
	w.Ready = func(a net.Addr) { ready <- a }
	go func() { w.report <- w.Run(ctx) }()
	select {
	case a := <-ready:
		w.url = "http://" + a.String()
	case r := <-w.report:
		t.Fatalf("the server ended: %+v", r)
	}
	t.Cleanup(func() { stop() })
	return w
}

func (w *worker) ends(t *testing.T, want task.Reason) task.Report {
	t.Helper()
	r := <-w.report
	if r.Reason != want {
		t.Fatalf("the worker ended with %+v, want %s", r, want)
	}
	return r
}

// says waits until the server says so of the last upload, whose client has gone before it noticed.
func (w *worker) says(t *testing.T, trouble string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for p := w.Progress(); p.Stage != task.Waiting || !strings.Contains(p.Trouble, trouble); p = w.Progress() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("the server says %+v, not %q", p, trouble)
		}
	}
}

func (w *worker) holds(t *testing.T, want []byte) {
	t.Helper()
	got, err := os.ReadFile(w.target)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(got) != sha256.Sum256(want) {
		t.Fatalf("the disk has %d bytes that are not the %d that were sent", len(got), len(want))
	}
}

// send makes a request; a body that is cut breaks the connection after so many bytes.
func (w *worker) send(t *testing.T, method, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if method == http.MethodPatch || strings.HasPrefix(path, tus.Path) {
		req.Header.Set(tus.Resumable, tus.Version)
	}
	answer, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Logf("%s %s: %v", method, path, err)
		return nil
	}
	text, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	t.Logf("%s %s: %s %s", method, path, answer.Status, bytes.TrimSpace(text))
	return answer
}

func (w *worker) status(t *testing.T, want int, method, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	answer := w.send(t, method, path, body, headers...)
	if answer == nil || answer.StatusCode != want {
		t.Fatalf("%s %s: got %v, want %d", method, path, answer, want)
	}
	return answer
}

func TestWholeImage(t *testing.T) {
	image := noise(1, 3<<20+17)
	form := func() (io.Reader, string) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		_ = m.WriteField("other", "x")
		f, _ := m.CreateFormFile("file", "disk.img")
		_, _ = f.Write(image)
		_ = m.Close()
		return &b, m.FormDataContentType()
	}
	for name, send := range map[string]func(*testing.T, *worker){
		"POST": func(t *testing.T, w *worker) {
			w.status(t, 200, http.MethodPost, "/v1beta1/upload", bytes.NewReader(image))
		},
		"PUT to a name": func(t *testing.T, w *worker) {
			w.status(t, 200, http.MethodPut, "/disk.qcow2", bytes.NewReader(image))
		},
		"without a length": func(t *testing.T, w *worker) {
			w.status(t, 200, http.MethodPost, "/", struct{ io.Reader }{bytes.NewReader(image)})
		},
		"a form": func(t *testing.T, w *worker) {
			body, kind := form()
			w.status(t, 200, http.MethodPost, "/v1beta1/upload-form", body, "Content-Type", kind)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
			w.status(t, 200, http.MethodHead, "/v1beta1/upload-async", nil)
			send(t, w)
			w.ends(t, task.Completed)
			w.holds(t, image)
		})
	}
}

func TestBadUploadsAndARetry(t *testing.T) {
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), func(k *task.Task) { k.Target.Size = 1 << 20 })
	image := noise(2, 1<<20)
	w.status(t, 400, http.MethodPost, "/", bytes.NewReader(noise(3, 2<<20)))              // too large
	w.status(t, 400, http.MethodPost, "/", strings.NewReader("QFI\xfb and then nothing")) // not an image
	w.status(t, 400, http.MethodPost, "/", strings.NewReader(""))                         // nothing at all
	if trouble := w.Progress().Trouble; !strings.Contains(trouble, "empty") {
		t.Errorf("the last trouble is %q", trouble)
	}
	w.status(t, 400, http.MethodPost, "/", strings.NewReader("--x\r\n"), "Content-Type", "multipart/form-data; boundary=x")
	w.status(t, 405, http.MethodDelete, "/", nil)
	broken := io.MultiReader(bytes.NewReader(image[:1000]), failing{})
	if answer := w.send(t, http.MethodPost, "/", broken); answer != nil { // the client goes away
		t.Fatalf("a broken request was answered: %v", answer)
	}
	w.says(t, "unexpected EOF")
	w.turn.Lock()   // the broken one unlocks it right after
	w.turn.Unlock() //nolint:staticcheck // SA2001: having had it is the point
	w.status(t, 200, http.MethodPost, "/", bytes.NewReader(image))
	w.ends(t, task.Completed)
	w.holds(t, image)
	left, err := os.ReadDir(filepath.Dir(w.target))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the disk there is %v (%v)", left, err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the cable is out") }

// TestOneAtATime: a second upload is sent away while one continues, and any upload after the end.
func TestOneAtATime(t *testing.T) {
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
	r, feed := io.Pipe()
	first := make(chan *http.Response, 1)
	go func() { first <- w.send(t, http.MethodPost, "/", r) }()
	if _, err := feed.Write(noise(4, 1<<20)); err != nil {
		t.Fatal(err)
	}
	w.status(t, 503, http.MethodPost, "/", strings.NewReader("another"))
	w.status(t, 503, http.MethodPost, tus.Path, nil, tus.Length, "5")
	_ = feed.Close()
	if answer := <-first; answer == nil || answer.StatusCode != 200 {
		t.Fatalf("the first upload: %v", answer)
	}
	w.ends(t, task.Completed)

	over := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
	over.mu.Lock()
	over.done = &task.Report{Outcome: task.Done, Upload: "5-image-0123456789abcdef"}
	over.mu.Unlock()
	over.status(t, 200, http.MethodHead, tus.Path+"/5-image-0123456789abcdef", nil) // its sender may not have got the answer
	over.status(t, 409, http.MethodHead, tus.Path+"/5-image-fedcba9876543210", nil)
	over.status(t, 409, http.MethodPost, "/", strings.NewReader("x"))
	over.status(t, 409, http.MethodPost, tus.Path, nil, tus.Length, "5")
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), func(k *task.Task) { k.Source.Upload.TokenDir = dir })
	w.status(t, 400, http.MethodPut, "/", strings.NewReader("x"))
	w.status(t, 401, http.MethodPut, "/", strings.NewReader("x"), "Authorization", "Bearer wrong")
	w.status(t, 200, http.MethodPut, "/", strings.NewReader("x"), "Authorization", "Bearer secret")
	w.ends(t, task.Completed)
}

func TestSlowClientIsCutOff(t *testing.T) {
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
	w.pace = minrate.Limit{Window: 50 * time.Millisecond, Bytes: 1 << 20}
	r, feed := io.Pipe()
	defer feed.Close()
	go func() { _, _ = feed.Write([]byte("drip")) }()
	if answer := w.send(t, http.MethodPost, "/", r); answer != nil && answer.StatusCode != 400 {
		t.Fatalf("got %v", answer)
	}
	w.says(t, "too slow")
}

func create(t *testing.T, w *worker, length int, about map[string]string) string {
	t.Helper()
	answer := w.status(t, 201, http.MethodPost, tus.Path, nil, tus.Length, strconv.Itoa(length), tus.Metadata, tus.FormatMetadata(about))
	return answer.Header.Get("Location")
}

func offset(t *testing.T, w *worker, place string) int64 {
	t.Helper()
	answer := w.status(t, 200, http.MethodHead, place, nil)
	at, err := tus.ParseOffset(answer.Header)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestTusByHand does what any tus client does: it sends bytes in several pieces, some of which break.
func TestTusByHand(t *testing.T) {
	image := noise(5, 5<<20+3)
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
	w.status(t, 204, http.MethodOptions, tus.Path, nil)
	place := create(t, w, len(image), nil)
	patch := func(want int, at, to int, headers ...string) *http.Response {
		headers = append([]string{"Content-Type", tus.Plain, tus.Offset, strconv.Itoa(at)}, headers...)
		return w.status(t, want, http.MethodPatch, place, bytes.NewReader(image[at:to]), headers...)
	}
	patch(204, 0, 1000)
	patch(409, 0, 1000)
	patch(415, 1000, 2000, "Content-Type", "text/plain")
	patch(400, 1000, 2000, tus.Offset, "-1")
	if got := offset(t, w, place); got != 1000 {
		t.Fatalf("the server is at %d", got)
	}
	answer := w.send(t, http.MethodPatch, place, io.MultiReader(bytes.NewReader(image[1000:2<<20]), failing{}),
		"Content-Type", tus.Plain, tus.Offset, "1000")
	if answer != nil {
		t.Fatalf("a broken request was answered: %v", answer)
	}
	// It may not have noticed yet, and then it is busy or moves on; every client tries again.
	for {
		at := int(offset(t, w, place))
		if at < 1000 || at > 2<<20 {
			t.Fatalf("the server is at %d", at)
		}
		answer := w.send(t, http.MethodPatch, place, bytes.NewReader(image[at:]), "Content-Type", tus.Plain, tus.Offset, strconv.Itoa(at))
		if answer != nil && answer.StatusCode == http.StatusNoContent {
			break
		}
		if answer == nil || answer.StatusCode != http.StatusServiceUnavailable && answer.StatusCode != http.StatusConflict {
			t.Fatalf("the rest was answered %v", answer)
		}
	}
	w.ends(t, task.Completed)
	w.holds(t, image)
}

func TestTusRefusals(t *testing.T) {
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), func(k *task.Task) { k.Target.Size = 1 << 20 })
	w.status(t, 400, http.MethodPost, tus.Path, nil)
	w.status(t, 400, http.MethodPost, tus.Path, nil, tus.Length, "0")
	w.status(t, 400, http.MethodPost, tus.Path, nil, tus.Length, "5", tus.Metadata, "key not!base64")
	w.status(t, 404, http.MethodHead, tus.Path+"/nobody-made-this", nil)
	place := create(t, w, 10, nil)
	other := create(t, w, 11, nil) // takes its place
	w.status(t, 404, http.MethodHead, place, nil)
	w.status(t, 200, http.MethodHead, other, nil)
	// frames that are none
	w.status(t, 400, http.MethodPatch, other, strings.NewReader("this is no frame at all"), "Content-Type", tus.Frames, tus.Offset, "0")
	// a disk that does not fit is refused before it is sent, and the next one fits
	big := create(t, w, 2<<20, map[string]string{tus.Format: tus.Raw})
	w.status(t, 400, http.MethodPatch, big, bytes.NewReader(noise(6, 2<<20)), "Content-Type", tus.Plain, tus.Offset, "0")
	fits := create(t, w, 4, map[string]string{tus.Format: tus.Raw})
	w.status(t, 204, http.MethodPatch, fits, strings.NewReader("data"), "Content-Type", tus.Plain, tus.Offset, "0")
	w.ends(t, task.Completed)
}

// sparse makes a file of which most is a hole, and returns what it holds.
func sparse(t *testing.T, size int) (path string, want []byte) {
	t.Helper()
	path, want = filepath.Join(t.TempDir(), "source.img"), make([]byte, size)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	for i, at := range []int{0, 1<<20 + 4096, size / 2, size - 5000} {
		p := noise(uint64(10+i), 5000)
		copy(want[at:], p)
		if _, err := f.WriteAt(p, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	return path, want
}

func options(w *worker) client.Options {
	return client.Options{
		URL: w.url, Retries: 3, Token: func(context.Context) (string, error) { return "none", nil },
		Pause: func(int) time.Duration { return time.Millisecond },
	}
}

func TestClientSendsOnlyData(t *testing.T) {
	path, want := sparse(t, 64<<20)
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
	var last int64
	o := options(w)
	o.Progress = func(done, total int64) {
		if total != int64(len(want)) || done < 0 || done > total {
			t.Errorf("progress %d of %d", done, total)
		}
		last = done
	}
	if err := client.Send(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	r := w.ends(t, task.Completed)
	w.holds(t, want)
	if last != int64(len(want)) {
		t.Errorf("the last progress was %d", last)
	}
	if r.Read > 1<<20 {
		t.Errorf("%d bytes were sent for %d of data", r.Read, 4*5000)
	}
}

// TestClientGoesOnAfterCuts breaks the connection again and again; every byte the server has is asked for once.
func TestClientGoesOnAfterCuts(t *testing.T) {
	for name, image := range map[string][]byte{"raw": noise(7, 8<<20+11), "gzip": gzipped(noise(8, 8<<20))} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "source")
			if err := os.WriteFile(path, image, 0o600); err != nil {
				t.Fatal(err)
			}
			w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
			v := newValve(t, strings.TrimPrefix(w.url, "http://"), 1<<20)
			o := options(w)
			o.URL = v.url
			if err := client.Send(t.Context(), path, o); err != nil {
				t.Fatal(err)
			}
			w.ends(t, task.Completed)
			if name == "raw" {
				w.holds(t, image)
			} else {
				w.holds(t, noise(8, 8<<20))
			}
			// The last piece under way is lost with each cut; what the server has is not sent again.
			if sent, cuts := v.passed.Load(), v.cuts.Load(); cuts < 3 || sent > int64(len(image))+(cuts+1)*(1<<20) {
				t.Errorf("%d bytes were sent in %d connections for %d", sent, cuts, len(image))
			}
		})
	}
}

// TestAnotherWorkerGoesOn stops the worker in the middle: the next one says how far the disk is, and the client continues.
func TestAnotherWorkerGoesOn(t *testing.T) {
	image := noise(9, 24<<20)
	target := filepath.Join(t.TempDir(), "disk.img")
	about := map[string]string{tus.Fingerprint: "the same file", tus.Format: tus.Raw}
	first := serve(t, target, nil)
	place := create(t, first, len(image), about)
	half := len(image) / 2
	first.status(t, 204, http.MethodPatch, place, bytes.NewReader(image[:half]), "Content-Type", tus.Plain, tus.Offset, "0")
	first.stop()
	first.ends(t, task.Interrupted)

	second := serve(t, target, nil)
	at := int(offset(t, second, place))
	if at < half-4<<20 || at > half {
		t.Fatalf("the next worker is at %d, the first one was at %d", at, half)
	}
	if again := create(t, second, len(image), about); again != place {
		t.Errorf("the same file has another upload: %s instead of %s", again, place)
	}
	second.status(t, 204, http.MethodPatch, place, bytes.NewReader(image[at:]), "Content-Type", tus.Plain, tus.Offset, strconv.Itoa(at))
	r := second.ends(t, task.Completed)
	second.holds(t, image)
	if r.Resumed != int64(at) {
		t.Errorf("resumed %d, the client was told %d", r.Resumed, at)
	}
}

// TestAnotherFileStartsOver: what is left of one file never becomes part of another.
func TestAnotherFileStartsOver(t *testing.T) {
	target := filepath.Join(t.TempDir(), "disk.img")
	first := serve(t, target, nil)
	one, two := noise(10, 8<<20), noise(11, 8<<20)
	place := create(t, first, len(one), map[string]string{tus.Fingerprint: "one", tus.Format: tus.Raw})
	first.status(t, 204, http.MethodPatch, place, bytes.NewReader(one[:6<<20]), "Content-Type", tus.Plain, tus.Offset, "0")
	first.stop()
	first.ends(t, task.Interrupted)

	second := serve(t, target, nil)
	place = create(t, second, len(two), map[string]string{tus.Fingerprint: "two", tus.Format: tus.Raw})
	if at := offset(t, second, place); at != 0 {
		t.Fatalf("another file begins at %d", at)
	}
	second.status(t, 204, http.MethodPatch, place, bytes.NewReader(two), "Content-Type", tus.Plain, tus.Offset, "0")
	second.ends(t, task.Completed)
	second.holds(t, two)
}

// TestMixedBodies: frames and plain bytes may take turns in one upload.
func TestMixedBodies(t *testing.T) {
	image := noise(12, 3<<20)
	clear(image[1<<20 : 2<<20])
	w := serve(t, filepath.Join(t.TempDir(), "disk.img"), nil)
	place := create(t, w, len(image), nil)
	w.status(t, 204, http.MethodPatch, place, bytes.NewReader(image[:1<<19]), "Content-Type", tus.Plain, tus.Offset, "0")
	var framed bytes.Buffer
	if _, err := peerproto.NewPlainWriter(&framed).Write(image[1<<19:]); err != nil {
		t.Fatal(err)
	}
	if framed.Len() > 2<<20 {
		t.Errorf("%d bytes of frames for %d of data", framed.Len(), 3<<19)
	}
	w.status(t, 204, http.MethodPatch, place, &framed, "Content-Type", tus.Frames, tus.Offset, fmt.Sprint(1<<19))
	w.ends(t, task.Completed)
	w.holds(t, image)
}
