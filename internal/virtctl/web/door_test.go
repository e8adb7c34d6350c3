package web

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// simulatedCluster knows two tokens, has no kinds, and notes with which token it was asked.
type simulatedCluster struct {
	mu    sync.Mutex
	asked map[string]bool
}

func (c *simulatedCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	c.mu.Lock()
	c.asked[token] = true
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if token != "alices" && token != "bobs" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401}`)
		return
	}
	if strings.Contains(r.URL.Path, "selfsubjectreviews") {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}`)
		return
	}
	if strings.Contains(r.URL.Path, "selfsubjectaccessreviews") {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": false}}`)
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
}

func tokenServer(t *testing.T) (http.Handler, *TokenDoor, *simulatedCluster) {
	t.Helper()
	cluster := &simulatedCluster{asked: map[string]bool{}}
	api := httptest.NewServer(cluster)
	t.Cleanup(api.Close)
	// The rights of the configuration are not used here.
	door, err := NewTokenDoor(t.Context(), &rest.Config{Host: api.URL, BearerToken: "the servers own"})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Door: door, Hosts: []string{"127.0.0.1"}, Log: slog.New(slog.DiscardHandler)}
	return s.Handler(), door, cluster
}

func signIn(h http.Handler, token string) *http.Response {
	r := httptest.NewRequest("POST", "https://127.0.0.1:1234/sign-in", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "https://127.0.0.1:1234")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// TestSignIn: a token that the cluster knows opens the page; it is kept sealed, in a cookie that no other site can use, and every
// question is asked with it and with no other.
func TestSignIn(t *testing.T) {
	h, door, cluster := tokenServer(t)
	for _, wrong := range []string{"", "mallorys", strings.Repeat("x", tokenMost+1)} {
		if a := signIn(h, wrong); a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) > 0 {
			t.Errorf("with token %.20q: %s %v", wrong, a.Status, a.Cookies())
		}
	}
	a := signIn(h, "alices")
	if a.StatusCode != http.StatusSeeOther || len(a.Cookies()) != 1 {
		t.Fatalf("%s %v", a.Status, a.Cookies())
	}
	c := a.Cookies()[0]
	if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	if strings.Contains(c.Value, "alices") {
		t.Error("the token can be read in the cookie")
	}
	if a := asks(h, "GET", "/volumes", func(r *http.Request) { r.AddCookie(c) }); a.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %s", a.Status)
	}
	for token := range cluster.asked {
		if token != "alices" && token != "mallorys" {
			t.Errorf("the cluster was asked with %q", token)
		}
	}
	for name, value := range map[string]string{
		"changed": flipped(c.Value), "cut": c.Value[:10], "nothing": "", "not ours": "YWxpY2Vz", "of another server": other(t),
	} {
		a := asks(h, "GET", "/volumes", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: value}) })
		if a.StatusCode != http.StatusUnauthorized {
			t.Errorf("a cookie that is %s: %s", name, a.Status)
		}
	}
	door.now = func() time.Time { return time.Now().Add(sessionFor + time.Minute) }
	if a := asks(h, "GET", "/volumes", func(r *http.Request) { r.AddCookie(c) }); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the session: %s", a.Status)
	}
}

// other returns a cookie of a server with another key.
func other(t *testing.T) string {
	t.Helper()
	h, _, _ := tokenServer(t)
	return signIn(h, "alices").Cookies()[0].Value
}

// TestPeople: two people who look have nothing in common, and one who leaves is forgotten.
func TestPeople(t *testing.T) {
	h, door, _ := tokenServer(t)
	alice, bob := signIn(h, "alices").Cookies()[0], signIn(h, "bobs").Cookies()[0]
	who := func(c *http.Cookie) *Person {
		r := httptest.NewRequest("GET", "https://127.0.0.1/", nil)
		r.AddCookie(c)
		p, err := door.Who(r)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := who(alice), who(bob)
	if a == b || a.Store == b.Store || a.Client.Config.BearerToken != "alices" || b.Client.Config.BearerToken != "bobs" || who(alice) != a {
		t.Error("people are mixed up")
	}
	out := asks(h, "POST", "/sign-out", func(r *http.Request) { r.AddCookie(alice); r.Header.Set("Origin", "http://127.0.0.1:1234") })
	if out.StatusCode != http.StatusSeeOther || len(out.Cookies()) != 1 || out.Cookies()[0].MaxAge >= 0 {
		t.Errorf("to leave: %s %v", out.Status, out.Cookies())
	}
	if len(door.people) != 1 {
		t.Errorf("%d people are watched for", len(door.people))
	}
}

// flipped returns a text with another first character.
func flipped(text string) string {
	if text[0] == 'A' {
		return "B" + text[1:]
	}
	return "A" + text[1:]
}
