package proxy

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/receive"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// house is a proxy with real workers behind it, over real mutual TLS.
type house struct {
	t         *testing.T
	authority *pki.Authority
	key       ed25519.PrivateKey
	url       string
	client    string // directory of the proxy's certificate
	proxy     *proxy

	mu      sync.Mutex
	workers map[string]Worker
	lacks   map[string]error
	told    []string
}

func newHouse(t *testing.T, change func(*Options)) *house {
	t.Helper()
	a, err := pki.New("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, authority: a, key: key, workers: map[string]Worker{}, lacks: map[string]error{}}
	h.client = h.certificate(pki.Leaf{Name: "the-proxy", Use: x509.ExtKeyUsageClientAuth, Lasts: time.Hour})
	o := Options{
		Find: h.find, Keys: func() []ed25519.PublicKey { return []ed25519.PublicKey{key.Public().(ed25519.PublicKey)} },
		Dial: NewDialer(h.client), Places: 64, Patience: time.Second, Pace: minrate.Default, Log: slog.New(slog.DiscardHandler),
		Tell: func(_ Worker, message string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.told = append(h.told, message)
		},
	}
	if change != nil {
		change(&o)
	}
	h.proxy = New(o).(*proxy)
	s := httptest.NewServer(h.proxy)
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}

func (h *house) certificate(l pki.Leaf) string {
	h.t.Helper()
	p, err := h.authority.Issue(l, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	dir := h.t.TempDir()
	for name, data := range map[string][]byte{
		"tls.crt": p.Certificate, "tls.key": p.Key, "ca.crt": pki.PEM(h.authority.Certificate().Raw),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	return dir
}

func (h *house) find(_ context.Context, c token.Claim) (Worker, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.lacks[c.Name]; err != nil {
		return Worker{}, err
	}
	w, ok := h.workers[c.Name]
	if !ok {
		return Worker{}, ErrNotReady
	}
	w.Claim = c
	return w, nil
}

// worker starts a worker for a claim; name is the name in its certificate.
func (h *house) worker(claim, name, clientName string) (target string, report chan task.Report) {
	h.t.Helper()
	dir := h.certificate(pki.Leaf{Name: name, DNSNames: []string{name}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour})
	target = filepath.Join(h.t.TempDir(), "disk.img")
	s := receive.New(task.Task{
		Version: task.Version, Volume: claim, Target: task.Target{Path: target, Content: task.Disk},
		Source: task.Source{Upload: &task.Upload{Listen: "127.0.0.1:0", TLSDir: dir, ClientCADir: dir, ClientName: clientName}},
	})
	ready := make(chan net.Addr, 1)
	s.Ready = func(a net.Addr) { ready <- a }
	report = make(chan task.Report, 1)
	ctx, stop := context.WithCancel(h.t.Context())
	h.t.Cleanup(stop)
	go func() { report <- s.Run(ctx) }()
	select {
	case a := <-ready:
		h.mu.Lock()
		h.workers[claim] = Worker{Address: a.String(), Name: claim}
		h.mu.Unlock()
	case r := <-report:
		h.t.Fatalf("the worker ended: %+v", r)
	}
	return target, report
}

func (h *house) token(claim string, lasts time.Duration) string {
	h.t.Helper()
	proof, err := token.SignUpload(h.key, token.Claim{Namespace: "ns", Name: claim, UID: "uid-" + claim}, time.Now().Add(lasts))
	if err != nil {
		h.t.Fatal(err)
	}
	return proof
}

func (h *house) send(method, path, token string, body io.Reader, headers ...string) (int, string, http.Header) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, body)
	if err != nil {
		h.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, strings.TrimSpace(string(text)), answer.Header
}

func (h *house) answers(status int, words, method, path, token string, body io.Reader, headers ...string) {
	h.t.Helper()
	got, text, _ := h.send(method, path, token, body, headers...)
	if got != status || !strings.Contains(text, words) {
		h.t.Errorf("%s %s: got %d %q, want %d %q", method, path, got, text, status, words)
	}
}

func TestWhoMayUpload(t *testing.T) {
	h := newHouse(t, func(o *Options) { o.Patience = time.Millisecond })
	h.lacks["done"], h.lacks["gone"], h.lacks["other"] = ErrFinished, ErrMissing, ErrOther
	h.lacks["broken"] = fmt.Errorf("the API server is down")
	const up = "/v1beta1/upload"
	h.answers(200, "", "HEAD", "/v1beta1/upload-async", "", nil)
	h.answers(200, "", "GET", "/healthz", "", nil)
	h.answers(400, "Bearer TOKEN", "POST", up, "", nil)
	h.answers(400, "Bearer TOKEN", "POST", up, "", nil, "Authorization", "Basic abc")
	h.answers(401, "malformed", "POST", up, "nonsense", nil)
	h.answers(401, "expired", "POST", up, h.token("x", -time.Second), nil)
	h.answers(503, "not ready", "POST", up, h.token("x", time.Minute), nil)
	h.answers(409, "already finished uploading", "POST", up, h.token("done", time.Minute), nil)
	h.answers(503, "that doesn't exist", "POST", up, h.token("gone", time.Minute), nil)
	h.answers(403, "earlier claim", "POST", up, h.token("other", time.Minute), nil)
	h.answers(503, "could not be asked", "POST", up, h.token("broken", time.Minute), nil)
	h.answers(403, "the token is for PVC ns/x", "PATCH", tus.Path+"/uid-y.1-raw-0123456789abcdef", h.token("x", time.Minute), nil)
	h.answers(405, "", "GET", up, h.token("x", time.Minute), nil)
	h.answers(404, "", "POST", "/v1/upload", h.token("x", time.Minute), nil)
	status, _, headers := h.send("OPTIONS", up, "", nil, "Access-Control-Request-Method", "POST", "Origin", "https://console")
	if status != 204 || headers.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("a browser is answered %d %v", status, headers)
	}
}

// TestBothEndsAreChecked: the proxy refuses a worker with another's name, and a worker a client with another's.
func TestBothEndsAreChecked(t *testing.T) {
	h := newHouse(t, nil)
	h.worker("a", "somebody-else", "the-proxy")
	h.worker("b", "b", "somebody-else")
	for _, name := range []string{"a", "b"} {
		h.answers(503, "worker went away", "POST", "/v1beta1/upload", h.token(name, time.Minute), strings.NewReader("disk"))
	}
	target, _ := h.worker("c", "c", "the-proxy")
	h.answers(200, "", "POST", "/v1beta1/upload", h.token("c", time.Minute), strings.NewReader("disk"))
	if got, err := os.ReadFile(target); err != nil || string(got) != "disk" {
		t.Errorf("the disk holds %q (%v)", got, err)
	}
}

func TestFailuresAreTold(t *testing.T) {
	h := newHouse(t, nil)
	h.worker("a", "a", "the-proxy")
	h.answers(400, "Saving stream failed", "POST", "/v1beta1/upload", h.token("a", time.Minute), strings.NewReader("QFI\xfb no image"))
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.told) != 1 || !strings.Contains(h.told[0], "Upload into a failed: Saving stream failed") {
		t.Errorf("told %q", h.told)
	}
}

// TestFiftyAtOnce sends fifty disks at the same time by the client. They all arrive, and tokens that expire are renewed.
func TestFiftyAtOnce(t *testing.T) {
	h := newHouse(t, nil)
	const n, size = 50, 2 << 20
	var all sync.WaitGroup
	for i := range n {
		claim := fmt.Sprintf("claim-%d", i)
		target, report := h.worker(claim, claim, "the-proxy")
		disk := make([]byte, size)
		_, _ = rand.Read(disk)
		path := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(path, disk, 0o600); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			first := true
			err := client.Send(t.Context(), path, client.Options{URL: h.url, Retries: 3, Token: func(context.Context) (string, error) {
				if first {
					first = false
					return h.token(claim, -time.Second), nil
				}
				return h.token(claim, time.Minute), nil
			}})
			if err != nil {
				t.Errorf("%s: %v", claim, err)
				return
			}
			r := <-report
			got, err := os.ReadFile(target)
			if r.Outcome != task.Done || err != nil || sha256.Sum256(got) != sha256.Sum256(disk) {
				t.Errorf("%s: %+v, %v", claim, r, err)
			}
		})
	}
	all.Wait()
}

func TestNoMoreThanThereAreFor(t *testing.T) {
	h := newHouse(t, func(o *Options) { o.Places = 1 })
	h.worker("a", "a", "the-proxy")
	h.worker("b", "b", "the-proxy")
	finish := h.begin("a")
	h.answers(503, "all there is room for", "POST", "/v1beta1/upload", h.token("b", time.Minute), strings.NewReader("disk"))
	if got := finish(); got != 200 {
		t.Errorf("the first upload was answered %d", got)
	}
}

// TestMeter: an upload under way is counted while it is, with what it has sent and what it was answered.
func TestMeter(t *testing.T) {
	m := NewMeter()
	h := newHouse(t, func(o *Options) { o.Places, o.Meter = 3, m })
	h.worker("a", "a", "the-proxy")
	is := func(when string, active, waiting, bytes float64) {
		t.Helper()
		a, w, b := testutil.ToFloat64(m.active), testutil.ToFloat64(m.waiting), testutil.ToFloat64(m.bytes)
		if a != active || w != waiting || b < bytes {
			t.Errorf("%s: %v under way, %v wait, %v bytes", when, a, w, b)
		}
	}
	is("before", 0, 0, 0)
	finish := h.begin("a")
	for testutil.ToFloat64(m.active) == 0 { // it has its place a moment before it is counted
		<-time.After(time.Millisecond)
	}
	is("meanwhile", 1, 0, 0)
	if got := finish(); got != 200 {
		t.Errorf("the upload was answered %d", got)
	}
	for testutil.ToFloat64(m.active) != 0 {
		<-time.After(time.Millisecond)
	}
	is("afterwards", 0, 0, 1<<20)
	h.answers(400, "Bearer", "POST", "/v1beta1/upload", "", nil)
	if ok, bad := testutil.ToFloat64(m.requests.WithLabelValues("200")), testutil.ToFloat64(m.requests.WithLabelValues("400")); ok != 1 || bad != 1 || testutil.ToFloat64(m.places) != 3 {
		t.Errorf("%v were answered with 200 and %v with 400", ok, bad)
	}
}

// begin has an upload under way, the first that has a place, until it is finished; that says what it was answered.
func (h *house) begin(claim string) (finish func() int) {
	h.t.Helper()
	r, feed := io.Pipe()
	done := make(chan int, 1)
	go func() {
		req, err := http.NewRequestWithContext(h.t.Context(), "POST", h.url+"/v1beta1/upload", r)
		if err != nil {
			done <- 0
			return
		}
		req.Header.Set("Authorization", "Bearer "+h.token(claim, time.Minute))
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			done <- 0
			return
		}
		_ = answer.Body.Close()
		done <- answer.StatusCode
	}()
	if _, err := feed.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		h.t.Fatal(err)
	}
	for len(h.proxy.places.free) == 0 {
		<-time.After(time.Millisecond)
	}
	return func() int {
		_ = feed.Close()
		return <-done
	}
}

// TestOneNamespaceHasNotAllPlaces: neither with uploads that go on nor with requests that wait for a worker that never comes.
func TestOneNamespaceHasNotAllPlaces(t *testing.T) {
	isIn := make(chan struct{}, 1)
	h := newHouse(t, func(o *Options) {
		o.Places, o.PerNamespace, o.PerClaim, o.Patience = 4, 2, 1, 10*time.Second
		find := o.Find
		o.Find = func(ctx context.Context, c token.Claim) (Worker, error) {
			if c.Name == "never" {
				select {
				case isIn <- struct{}{}:
				default:
				}
			}
			return find(ctx, c)
		}
	})
	h.worker("a", "a", "the-proxy")
	h.worker("b", "b", "the-proxy")
	h.worker("theirs", "theirs", "the-proxy")
	finish := h.begin("a")
	h.answers(503, "all one claim may have", "POST", "/v1beta1/upload", h.token("a", time.Minute), strings.NewReader("disk"))
	ctx, stop := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", h.url+"/v1beta1/upload", strings.NewReader("disk"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.token("never", time.Minute))
	waits := make(chan error, 1)
	go func() {
		answer, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = answer.Body.Close()
		}
		waits <- err
	}()
	<-isIn
	h.answers(503, "all one namespace may have", "POST", "/v1beta1/upload", h.token("b", time.Minute), strings.NewReader("disk"))
	proof, err := token.SignUpload(h.key, token.Claim{Namespace: "other", Name: "theirs", UID: "uid-theirs"}, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	h.answers(200, "", "POST", "/v1beta1/upload", proof, strings.NewReader("disk"))
	stop()
	if err := <-waits; err == nil {
		t.Error("a request without a worker was answered")
	}
	if got := finish(); got != 200 {
		t.Errorf("the first upload was answered %d", got)
	}
}

// TestAPlaceIsWaitedFor: a request waits for a free place, and a request that was cancelled is no longer counted.
func TestAPlaceIsWaitedFor(t *testing.T) {
	h := newHouse(t, func(o *Options) { o.Places, o.Patience = 1, 30*time.Second })
	h.worker("a", "a", "the-proxy")
	h.worker("b", "b", "the-proxy")
	finish := h.begin("a")
	go func() {
		<-time.After(50 * time.Millisecond) // b is there by then, or comes later and need not wait
		finish()
	}()
	h.answers(200, "", "POST", "/v1beta1/upload", h.token("b", time.Minute), strings.NewReader("disk"))
}

// TestAnswerToHalf: a worker that answers to the half that a client sent before it went away is not what the owner is told of, and one
// that refuses all of an upload is.
func TestAnswerToHalf(t *testing.T) {
	for want, sent := range map[string]io.Reader{
		"failed after 4 bytes: the client went away": io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)),
		"failed: no disk": strings.NewReader("half"),
	} {
		told := ""
		p := &proxy{Options: Options{Log: slog.New(slog.DiscardHandler), Tell: func(_ Worker, message string) { told = message }}}
		body := &counter{ReadCloser: io.NopCloser(sent)}
		_, _ = io.Copy(io.Discard, body) // as it is sent on, until it breaks
		answer := &http.Response{StatusCode: http.StatusBadRequest, Body: io.NopCloser(strings.NewReader("no disk"))}
		p.note(httptest.NewRequest(http.MethodPost, "/v1beta1/upload", nil), Worker{}, body, answer, time.Second)
		if !strings.Contains(told, want) {
			t.Errorf("the owner was told %q, not %q", told, want)
		}
	}
}
