package http

import (
	nethttp "net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
)

// TestRedirectsTakeNoSecretsAlong lets a server send us to another one, and back.
func TestRedirectsTakeNoSecretsAlong(t *testing.T) {
	content := sourcetest.Content(1, 1000)
	var home, away string
	other := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		for _, name := range []string{"Authorization", "X-Token", "Referer", "Cookie"} {
			if r.Header.Get(name) != "" {
				t.Errorf("another host was told %s: %s", name, r.Header.Get(name))
			}
		}
		if r.URL.Path == "/back" {
			nethttp.Redirect(w, r, home+"/bare", nethttp.StatusTemporaryRedirect)
			return
		}
		file(content)(w, r)
	})
	own := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		// What another host sends us back to is that host's choice, and gets nothing.
		if told := r.Header.Get("X-Token") == "hush" && r.Header.Get("Authorization") != ""; told == (r.URL.Path == "/bare") {
			t.Errorf("our own host was told the secrets at %s: %t", r.URL, told)
		}
		switch r.URL.Path {
		case "/away":
			nethttp.Redirect(w, r, away+"/file?sig=1", nethttp.StatusFound)
		case "/around":
			nethttp.Redirect(w, r, away+"/back", nethttp.StatusFound)
		case "/near":
			nethttp.Redirect(w, r, "/final", nethttp.StatusMovedPermanently)
		default:
			file(content)(w, r)
		}
	})
	home, away = own.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	for _, path := range []string{"/away", "/around", "/near", "/final"} {
		t.Run(path, func(t *testing.T) {
			b := get(t, task.HTTP{URL: own.URL + path, Headers: []string{"X-Token: hush", "Cookie: a=b"},
				Access: task.Access{CredentialsDir: secret(t, "user", "pass")}})
			sourcetest.Same(t, b, 10, 100, content[10:110])
		})
	}
}

// TestRangesComeFromOneMirror is about hosts that send each request to another mirror.
func TestRangesComeFromOneMirror(t *testing.T) {
	content := sourcetest.Content(1, 10_000)
	var asked, served atomic.Int64
	var expired atomic.Bool
	mirror := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if expired.Load() && r.URL.RawQuery == "sig=1" {
			nethttp.Error(w, "expired", nethttp.StatusForbidden)
			return
		}
		served.Add(1)
		file(content)(w, r)
	})
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		sig := "?sig=1"
		if asked.Add(1) > 1 {
			sig = "?sig=2"
		}
		nethttp.Redirect(w, r, mirror.URL+"/file"+sig, nethttp.StatusFound)
	})
	b := get(t, task.HTTP{URL: s.URL})
	for i := range int64(10) {
		sourcetest.Same(t, b, i*100, 100, content[i*100:(i+1)*100])
	}
	if asked.Load() != 1 || served.Load() != 11 {
		t.Errorf("the first host was asked %d times, the mirror %d times", asked.Load(), served.Load())
	}
	expired.Store(true)
	sourcetest.Same(t, b, 0, -1, content)
	if asked.Load() != 2 {
		t.Errorf("after the redirect expired the first host was asked %d times in all", asked.Load())
	}
}

func TestRedirectsInACircle(t *testing.T) {
	var asked atomic.Int64
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		asked.Add(1)
		nethttp.Redirect(w, r, r.URL.Path+"x", nethttp.StatusFound)
	})
	_, err := open(t.Context(), task.HTTP{URL: s.URL}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceUnreachable)
	if err != nil && !strings.Contains(err.Error(), "redirects") {
		t.Errorf("the message is %q", err)
	}
}

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		to, from string
		want     bool
	}{
		{"http://a/x", "http://a/y", true}, {"http://A:80/", "http://a/", true}, {"https://a/", "http://a/", true},
		{"http://a/", "https://a/", false}, {"https://a:8443/", "http://a/", false}, {"http://b.a/", "http://a/", false},
		{"http://a:81/", "http://a/", false}, {"https://a:443/", "https://a/", true}, {"https://[::1]/", "https://[::1]:443/", true},
	} {
		to, err := url.Parse(c.to)
		if err != nil {
			t.Fatal(err)
		}
		from, err := url.Parse(c.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := sameOrigin(to, from); got != c.want {
			t.Errorf("from %s to %s: %t", c.from, c.to, got)
		}
	}
}
