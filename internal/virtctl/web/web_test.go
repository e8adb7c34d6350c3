package web

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// served returns the page of one person, and the cookie that opens it.
func served(t *testing.T) (http.Handler, *SecretDoor, *http.Cookie) {
	t.Helper()
	door := NewSecretDoor(&Person{Client: &kube.Client{Namespace: "team"}}, "1234")
	s := &Server{Door: door, Hosts: []string{"127.0.0.1", "localhost"}, Log: slog.New(slog.DiscardHandler)}
	return s.Handler(), door, &http.Cookie{Name: door.name, Value: door.shown}
}

func asks(h http.Handler, method, path string, change func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, "http://127.0.0.1:1234"+path, strings.NewReader("{}"))
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// paths are one of each kind of request.
var paths = []struct{ method, path string }{
	{"GET", "/"}, {"GET", "/volumes"}, {"GET", "/images"}, {"GET", "/classes"}, {"GET", "/new"}, {"GET", "/machines/a/b"},
	{"GET", "/machines/a/b/console"}, {"GET", "/machines/a/b/screen"}, {"GET", "/stream?view=overview"}, {"GET", "/connect/console/a/b"},
	{"POST", "/new"}, {"POST", "/new/manifest"}, {"POST", "/machines/a/b/start"}, {"POST", "/machines/a/b/restore"}, {"POST", "/machines/a/b/restore-backup"}, {"POST", "/volumes/a/b/bind"},
	{"POST", "/uploads/a/b"}, {"GET", "/uploads/a/b/ready"}, {"POST", "/uploads/a/b/files"}, {"HEAD", "/uploads/a/b/files/x"}, {"PATCH", "/uploads/a/b/files/x"},
}

// TestStrangers: a client that has not shown the secret gets nothing.
func TestStrangers(t *testing.T) {
	h, door, cookie := served(t)
	for _, p := range paths {
		for name, change := range map[string]func(*http.Request){
			"nothing":        func(*http.Request) {},
			"another cookie": func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: "x" + cookie.Value[1:]}) },
			"the secret as a cookie": func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: cookie.Name, Value: door.secret})
			},
			"the secret in the address of something else": func(r *http.Request) { r.URL.RawQuery = door.Query()[1:] },
		} {
			if a := asks(h, p.method, p.path, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1234"); change(r) }); a.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s %s with %s: %s", p.method, p.path, name, a.Status)
			}
		}
	}
	for _, secret := range []string{"", "?secret=", "?secret=x", door.Query() + "x"} {
		if a := asks(h, "GET", "/enter"+secret, nil); a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) > 0 {
			t.Errorf("enter with %q: %s %v", secret, a.Status, a.Cookies())
		}
	}
}

// TestEnter: the secret is exchanged for a cookie that no other site can use, and is gone from the address.
func TestEnter(t *testing.T) {
	h, door, _ := served(t)
	a := asks(h, "GET", "/enter"+door.Query(), nil)
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/" || len(a.Cookies()) != 1 {
		t.Fatalf("%s %v %v", a.Status, a.Header, a.Cookies())
	}
	c := a.Cookies()[0]
	if c.SameSite != http.SameSiteStrictMode || !c.HttpOnly || c.Value == door.secret || c.MaxAge != 0 || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	if a := asks(h, "GET", "/", func(r *http.Request) { r.AddCookie(c) }); a.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %s", a.Status)
	}
}

// TestSecretOnce: a secret is good for one time. A browser that uses it later, from a history or a log, is refused; the person is
// told the next one.
func TestSecretOnce(t *testing.T) {
	h, door, _ := served(t)
	used := 0
	door.Used = func() { used++ }
	first := door.Query()
	for _, from := range []string{"none", "cross-site"} { // typed, and by a file
		query := door.Query()
		enter := func() *http.Response {
			return asks(h, "GET", "/enter"+query, func(r *http.Request) {
				r.Header.Set("Sec-Fetch-Site", from)
				r.Header.Set("Sec-Fetch-Mode", "navigate")
			})
		}
		if a := enter(); len(a.Cookies()) != 1 || from == "cross-site" && a.Header.Get("Refresh") != "0; url=/" {
			t.Errorf("%s: %s %v", from, a.Status, a.Header)
		}
		if a := enter(); a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) > 0 {
			t.Errorf("%s, a second time: %s %v", from, a.Status, a.Cookies())
		}
	}
	if used != 2 || door.Query() == first {
		t.Errorf("it was used %d times", used)
	}
}

// TestHandOver: the browser gets the secret by a file that only its person can read, which is gone afterwards.
func TestHandOver(t *testing.T) {
	const address = "http://127.0.0.1:1234/enter?secret=abc-_"
	path, cleanUp, err := handOverFile(address)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if file.Mode().Perm() != 0o600 || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v in %v", file.Mode(), dir.Mode())
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), address) {
		t.Errorf("%q, %v", text, err)
	}
	cleanUp()
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestHost: a request for another site's name that resolves to this machine gets nothing, not even with the cookie.
func TestHost(t *testing.T) {
	h, _, cookie := served(t)
	for _, p := range append(paths, struct{ method, path string }{"GET", "/assets/page.css"}) {
		for _, host := range []string{"evil.example:1234", "127.0.0.1.evil.example", "localhost.evil.example:1234", "", "[::1]:1234", "192.168.0.1:1234"} {
			a := asks(h, p.method, p.path, func(r *http.Request) {
				r.Host = host
				r.Header.Set("Origin", "http://"+host)
				r.AddCookie(cookie)
			})
			if a.StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("%s %s as %q: %s", p.method, p.path, host, a.Status)
			}
		}
	}
	if a := asks(h, "GET", "/volumes", func(r *http.Request) { r.Host = "LOCALHOST:99"; r.AddCookie(cookie) }); a.StatusCode != http.StatusOK {
		t.Errorf("as localhost: %s", a.Status)
	}
}

// TestOrigin: a page of another site can request nothing, even if a browser were to send the cookie.
func TestOrigin(t *testing.T) {
	h, _, cookie := served(t)
	for _, p := range paths {
		for name, change := range map[string]func(*http.Request){
			"another origin":          func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
			"another port":            func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:4321") },
			"no origin in particular": func(r *http.Request) { r.Header.Set("Origin", "null") },
			"a script of another site": func(r *http.Request) {
				r.Header.Set("Sec-Fetch-Site", "cross-site")
				r.Header.Set("Sec-Fetch-Mode", "no-cors")
			},
			"another port of this host": func(r *http.Request) {
				r.Header.Set("Sec-Fetch-Site", "same-site")
				r.Header.Set("Sec-Fetch-Mode", "cors")
			},
		} {
			a := asks(h, p.method, p.path, func(r *http.Request) { r.AddCookie(cookie); change(r) })
			if a.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s with %s: %s", p.method, p.path, name, a.Status)
			}
		}
	}
	for _, method := range []string{"POST", "PATCH"} { // what changes something must say where it comes from
		if a := asks(h, method, "/machines/a/b/stop", func(r *http.Request) { r.AddCookie(cookie) }); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s without an origin: %s", method, a.Status)
		}
	}
	socket := func(r *http.Request) {
		r.AddCookie(cookie)
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Connection", "Upgrade")
	}
	if a := asks(h, "GET", "/connect/console/a/b", socket); a.StatusCode != http.StatusForbidden {
		t.Errorf("a websocket without an origin: %s", a.Status)
	}
}

// TestPolicy: every answer forbids what a page must not do.
func TestPolicy(t *testing.T) {
	h, _, cookie := served(t)
	for _, path := range []string{"/", "/volumes", "/assets/page.mjs", "/none"} {
		a := asks(h, "GET", path, func(r *http.Request) { r.AddCookie(cookie) })
		policy := a.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "connect-src 'self'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s has no %s: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || a.Header.Get("X-Frame-Options") != "DENY" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, a.Header)
		}
	}
}

// TestAsked: the answers to what cannot be read say so.
func TestAsked(t *testing.T) {
	h, _, cookie := served(t)
	for path, body := range map[string]string{
		"/new/manifest": `{"name": `, "/new": `{"name": "x", "source": "http"}`, "/machines/a/b/fly": `{}`, "/volumes/a/b/bind": `{"place": "moon"}`,
		"/machines/a/b/snapshot": `{}`, "/uploads/a/b": `{"size": 10, "head": "!"}`,
	} {
		r := httptest.NewRequest("POST", "http://127.0.0.1:1234"+path, strings.NewReader(body))
		r.Header.Set("Origin", "http://127.0.0.1:1234")
		r.AddCookie(cookie)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `{"error":"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestThirdParty: what others wrote is as it was published.
func TestThirdParty(t *testing.T) {
	sums, err := os.Open("assets/third_party/sums")
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	known := map[string]bool{"README.md": true, "sums": true}
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		text, err := os.ReadFile("assets/third_party/" + name)
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s was changed", name)
		}
		known[name] = true
	}
	_ = fs.WalkDir(os.DirFS("assets/third_party"), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !known[path] {
			t.Errorf("%s is not in sums", path)
		}
		return err
	})
}

var colours = regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)

// TestContrast: text can be read on what it is on, in both schemes (WCAG AA: 4.5 to 1).
func TestContrast(t *testing.T) {
	text, err := os.ReadFile("assets/page.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, found := strings.Cut(string(text), "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("there is no dark scheme")
	}
	for name, part := range map[string]string{"light": light, "dark": dark} {
		is := map[string]string{}
		for _, m := range colours.FindAllStringSubmatch(part, -1) {
			is[m[1]] = m[2]
		}
		for _, pair := range [][2]string{
			{"text", "ground"}, {"text", "card"}, {"soft", "ground"}, {"soft", "card"}, {"link", "ground"}, {"link", "card"}, {"good", "card"},
			{"busy", "card"}, {"waiting", "card"}, {"bad", "card"}, {"bad", "ground"}, {"off", "card"}, {"main-text", "main"}, {"waiting", "ground"}, {"busy", "ground"},
		} {
			a, b := luminance(t, is[pair[0]]), luminance(t, is[pair[1]])
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
				t.Errorf("%s: %s on %s is %.1f to 1", name, pair[0], pair[1], ratio)
			}
		}
	}
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}
