package http

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"log"

	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// serve starts a server for a test.
func serve(t testing.TB, h nethttp.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, h task.HTTP) source.Blob {
	t.Helper()
	b, err := open(t.Context(), h, sourcetest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// file serves content in ranges, with an ETag.
func file(content []byte) nethttp.HandlerFunc {
	return func(w nethttp.ResponseWriter, r *nethttp.Request) {
		w.Header().Set("ETag", `"1"`)
		nethttp.ServeContent(w, r, "", epoch, bytes.NewReader(content))
	}
}

// TestServersWithoutRanges are read as streams, from start to end.
func TestServersWithoutRanges(t *testing.T) {
	content := sourcetest.Content(1, 300_001)
	for name, h := range map[string]nethttp.HandlerFunc{
		"ignored": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			sourcetest.NoRange(w, r, file(content))
		},
		"without a length": func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			_ = nethttp.NewResponseController(w).Flush()
			_, _ = w.Write(content)
		},
		"method not allowed": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.Header.Get("Range") != "" {
				nethttp.Error(w, "no ranges here", nethttp.StatusMethodNotAllowed)
				return
			}
			_, _ = w.Write(content)
		},
		"never satisfiable": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.Header.Get("Range") != "" {
				w.WriteHeader(nethttp.StatusRequestedRangeNotSatisfiable)
				return
			}
			_, _ = w.Write(content)
		},
		"wrong label": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			sourcetest.Label("bytes 1-1/300001")(w, r, file(content))
		},
		"everything under 206": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes 0-300000/300001")
				w.WriteHeader(nethttp.StatusPartialContent)
			}
			_, _ = w.Write(content)
		},
		"unknown size": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			sourcetest.Label("bytes 0-0/*")(w, r, file(content))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, h)
			sourcetest.Read(t, content, func(t *testing.T) source.Blob {
				b := get(t, task.HTTP{URL: s.URL})
				if b.Info().Ranged {
					t.Error("the blob has ranges")
				}
				return b
			})
		})
	}
}

// TestProbeIsNotAskedTwice is about servers that make their answer on the fly.
func TestProbeIsNotAskedTwice(t *testing.T) {
	var asked atomic.Int64
	s := serve(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		asked.Add(1)
		fmt.Fprint(w, "made on the fly")
	})
	b := get(t, task.HTTP{URL: s.URL})
	sourcetest.Same(t, b, 0, -1, []byte("made on the fly"))
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
	sourcetest.Same(t, b, 0, -1, []byte("made on the fly")) // it may be, after an error
}

func TestEmptyFile(t *testing.T) {
	for name, h := range map[string]nethttp.HandlerFunc{
		"go": file(nil),
		"nginx": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes */0")
				w.WriteHeader(nethttp.StatusRequestedRangeNotSatisfiable)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := get(t, task.HTTP{URL: serve(t, h).URL})
			if b.Info().Size != 0 {
				t.Errorf("size is %d", b.Info().Size)
			}
			sourcetest.Same(t, b, 0, -1, nil)
		})
	}
}

// TestAnswersThatAreWrong come after a probe that was right.
func TestAnswersThatAreWrong(t *testing.T) {
	content := sourcetest.Content(1, 100_000)
	for name, c := range map[string]struct {
		fault sourcetest.Fault
		want  task.Reason
	}{
		"another range":   {sourcetest.Label("bytes 0-999/100000"), task.SourceUnavailable},
		"a shorter range": {sourcetest.Label("bytes 500-600/100000"), task.SourceUnavailable},
		"another size":    {sourcetest.Label("bytes 500-1499/99999"), task.SourceChanged},
		"no label":        {sourcetest.Label("nonsense"), task.SourceUnavailable},
		"another version": {sourcetest.Header(func(h nethttp.Header) { h.Set("ETag", `"2"`) }), task.SourceChanged},
		"another length":  {sourcetest.Overstate(7), task.SourceUnavailable},
		"precondition":    {sourcetest.Answer(412), task.SourceChanged},
		"moved nowhere":   {sourcetest.Answer(302), task.SourceUnavailable},
		"no range":        {sourcetest.Answer(416), task.SourceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			front := &sourcetest.Front{Server: file(content), Data: func(*nethttp.Request) bool { return true }}
			b := get(t, task.HTTP{URL: serve(t, front.ServeHTTP).URL})
			front.Always(c.fault)
			_, err := sourcetest.Get(t.Context(), b, 500, 1000)
			sourcetest.Fails(t, err, c.want)
			front.Always(nil)
			sourcetest.Same(t, b, 500, 1000, content[500:1500])
		})
	}
}

// TestValidatorsMayBeMissing holds if an answer says less than the probe's did.
func TestValidatorsMayBeMissing(t *testing.T) {
	content := sourcetest.Content(1, 1000)
	front := &sourcetest.Front{Server: file(content), Data: func(*nethttp.Request) bool { return true }}
	b := get(t, task.HTTP{URL: serve(t, front.ServeHTTP).URL})
	front.Always(sourcetest.Header(func(h nethttp.Header) { h.Del("ETag"); h.Del("Last-Modified") }))
	sourcetest.Same(t, b, 10, 10, content[10:20])
}

func TestAnnouncedLengthIsWrong(t *testing.T) {
	s := serve(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(make([]byte, 900))
	})
	got, err := sourcetest.Get(t.Context(), get(t, task.HTTP{URL: s.URL}), 0, -1)
	sourcetest.Fails(t, err, task.SourceTruncated)
	if len(got) != 900 || !strings.Contains(err.Error(), "900 of 1000 bytes") {
		t.Errorf("got %d bytes and %q", len(got), err)
	}
}

// TestNothingIsDecoded holds even for a server that compresses without being asked.
func TestNothingIsDecoded(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("asked for the encoding %q", got)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(zipped.Bytes())
	})
	sourcetest.Same(t, get(t, task.HTTP{URL: s.URL}), 0, -1, zipped.Bytes())
}

func TestTrust(t *testing.T) {
	content := sourcetest.Content(1, 1000)
	s := httptest.NewUnstartedServer(file(content))
	s.EnableHTTP2 = true // which must not be spoken
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	_, err := open(t.Context(), task.HTTP{URL: s.URL}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceUntrusted)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for name, a := range map[string]task.Access{
		"CA": {CADir: mount(t, map[string]string{"ca.pem": string(ca)})}, "insecure": {Insecure: true},
	} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Same(t, get(t, task.HTTP{URL: s.URL, Access: a}), 10, 100, content[10:110])
		})
	}
	_, err = open(t.Context(), task.HTTP{URL: strings.Replace(s.URL, "https", "http", 1)}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceUnavailable) // the server says 400
}

func TestHeaders(t *testing.T) {
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		fmt.Fprint(w, r.Header.Get("X-Plain"), " ", r.Header.Get("X-Secret"), " ", r.Header.Get("Authorization"), " ", r.Host)
	})
	h := task.HTTP{
		URL: strings.Replace(s.URL, "http://", "http://user:pass@", 1), Headers: []string{"X-Plain: a:b", "Host: elsewhere"},
		HeadersDir: mount(t, map[string]string{"one": "X-Secret: hush\n"}),
	}
	b := get(t, h)
	sourcetest.Same(t, b, 0, -1, []byte("a:b hush Basic dXNlcjpwYXNz elsewhere"))
	if strings.Contains(b.Info().Name, "pass") {
		t.Errorf("the name %q has the password", b.Info().Name)
	}
	for _, bad := range []string{"", "no colon", ": no name", "a b: c", "X: line\nbreak", "Range: bytes=0-1", "if-range: x"} {
		_, err := open(t.Context(), task.HTTP{URL: s.URL, Headers: []string{bad}}, sourcetest.Patience)
		sourcetest.Fails(t, err, task.BadTask)
	}
	_, err := open(t.Context(), task.HTTP{URL: s.URL, HeadersDir: mount(t, map[string]string{"one": "hush"})}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.BadTask)
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("%q tells the secret", err)
	}
}

func TestProxy(t *testing.T) {
	content := sourcetest.Content(1, 1000)
	var through atomic.Int64
	proxy := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		through.Add(1)
		if r.URL.Host != "disks.example" {
			t.Errorf("the proxy was asked for %s", r.URL)
		}
		file(content)(w, r)
	})
	a := task.Access{HTTPProxy: proxy.URL, NoProxy: "direct.example"}
	sourcetest.Same(t, get(t, task.HTTP{URL: "http://disks.example/a", Access: a}), 10, 100, content[10:110])
	if through.Load() != 2 {
		t.Errorf("%d requests went through the proxy", through.Load())
	}
}

func TestURLsThatMakeNoSense(t *testing.T) {
	for _, in := range []string{"", "disk.img", "ftp://host/x", "http://", "http:///x", "http://user:topsecret@h\x00/", "http://[::1"} {
		_, err := open(t.Context(), task.HTTP{URL: in}, sourcetest.Patience)
		sourcetest.Fails(t, err, task.BadTask)
		if strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%q tells the password", err)
		}
	}
}

func TestMessagesKeepSecrets(t *testing.T) {
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		nethttp.Redirect(w, r, "http://127.0.0.1:1/?signature=topsecret", nethttp.StatusFound)
	})
	u := strings.Replace(s.URL, "http://", "http://user:topsecret@", 1) + "/disk.img?signature=topsecret"
	_, err := open(t.Context(), task.HTTP{URL: u}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceUnreachable)
	if text := err.Error(); strings.Contains(text, "topsecret") || !strings.Contains(text, "/disk.img") {
		t.Errorf("the message is %q", text)
	}
}

func FuzzParseContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/100", "bytes 0-9/*", "bytes */100", "bytes 9223372036854775807-9223372036854775807/*",
		"bytes -1-5/10", "bytes 5-4/10", "bytes 0-10/10", "BYTES  1-2/3 ", "bytes=0-1/2", "bytes +1-2/3", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseContentRange(s)
		if err != nil {
			return
		}
		if r.First < 0 != (r.Last < 0) || r.First > r.Last || r.Size >= 0 && r.Last >= r.Size || r.First < -1 || r.Size < -1 {
			t.Errorf("%q became %+v", s, r)
		}
		if r.First < 0 && r.Size < 0 {
			t.Errorf("%q says nothing and became %+v", s, r)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"http://h/a", "https://user:pw@h:1/a?b#c", "http://[::1]:80/%2e%2e", "HTTP://H", "http://h/\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := parse(raw)
		if err != nil {
			return
		}
		if _, err := nethttp.NewRequest(nethttp.MethodGet, u.String(), nil); err != nil { //nolint:noctx // it is not sent
			t.Errorf("%q became %q, for which there is no request: %v", raw, u, err)
		}
		if u.User != nil && u.User.String() != "" && strings.Contains(Name(u), u.User.String()+"@") {
			t.Errorf("the name %q has a password", Name(u))
		}
	})
}
