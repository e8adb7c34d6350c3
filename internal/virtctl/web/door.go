package web

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/web/watch"
)

// random returns a secret that cannot be guessed.
func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// SecretDoor admits a browser that shows the secret, which works once: for the person at the machine that serves the page.
type SecretDoor struct {
	// Used is called when the secret was shown and replaced by another. It may be nil.
	Used func()

	person *Person
	shown  string // what the cookie has instead of the secret
	name   string // of the cookie: cookies do not know ports

	mu     sync.Mutex
	secret string
}

// NewSecretDoor makes a secret. The port tells two pages of one machine apart.
func NewSecretDoor(p *Person, port string) *SecretDoor {
	return &SecretDoor{person: p, secret: random(), shown: random(), name: "berth-" + port}
}

// Query returns what the address must end with.
func (d *SecretDoor) Query() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "?secret=" + d.secret
}

// use reports whether the secret is the right one, and makes another if it is.
func (d *SecretDoor) use(secret string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(secret), []byte(d.secret)) != 1 {
		return false
	}
	d.secret = random()
	return true
}

// SignsIn implements Door.
func (d *SecretDoor) SignsIn() bool { return false }

// Routes implements Door.
func (d *SecretDoor) Routes(mux *http.ServeMux, s *Server) {
	mux.HandleFunc("GET /enter", func(w http.ResponseWriter, r *http.Request) {
		if !d.use(r.URL.Query().Get("secret")) {
			s.stranger(w)
			return
		}
		if d.Used != nil {
			d.Used()
		}
		http.SetCookie(w, &http.Cookie{ //nolint:gosec // G124: no Secure: the page is served on loopback, without TLS
			Name: d.name, Value: d.shown, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		if r.Header.Get("Sec-Fetch-Site") != "cross-site" {
			http.Redirect(w, r, "/", http.StatusSeeOther) // so that the secret is not in the address bar
			return
		}
		// The browser came by a file, and would not show the cookie where that leads. It does where this page leads.
		w.Header().Set("Refresh", "0; url=/")
		s.write(w, page{Title: "Berth", Body: "message", Text: "One moment."})
	})
}

// Who implements Door.
func (d *SecretDoor) Who(r *http.Request) (*Person, error) {
	c, err := r.Cookie(d.name)
	if err != nil || subtle.ConstantTimeCompare([]byte(c.Value), []byte(d.shown)) != 1 {
		return nil, errStranger
	}
	return d.person, nil
}

// TokenDoor admits browsers with a token that the cluster accepts. The browser keeps the token, encrypted, in a cookie; the
// server has only the watches of its visitors, which end when a visitor has been idle for a while.
type TokenDoor struct {
	config *rest.Config // where the cluster is; without anybody's rights
	seal   cipher.AEAD
	ctx    context.Context // ends all watches, which outlive the requests that begin them
	now    func() time.Time

	mu     sync.Mutex
	people map[[sha256.Size]byte]*guest
}

type guest struct {
	once   sync.Once
	person *Person
	err    error
	ctx    context.Context // of the watches, which outlive the request that begins them
	end    context.CancelFunc
	last   time.Time
}

const (
	tokenCookie = "__Host-berth" //nolint:gosec // a name, which a browser takes only from this very host, with TLS
	// sessionFor is how long a session lasts. A token may expire before.
	sessionFor = 12 * time.Hour
	// restFor is how long the watches of an idle visitor stay open.
	restFor = 5 * time.Minute
	// tokenMost is more than any token has.
	tokenMost = 16 << 10
)

// NewTokenDoor returns the door for a page in a cluster; ctx ends all watches. After a restart users must sign in again.
func NewTokenDoor(ctx context.Context, config *rest.Config) (*TokenDoor, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make a key for sessions: %w", err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make a key for sessions: %w", err)
	}
	d := &TokenDoor{config: rest.AnonymousClientConfig(config), seal: seal, ctx: ctx, now: time.Now, people: map[[sha256.Size]byte]*guest{}}
	go d.sweep()
	return d, nil
}

// SignsIn implements Door.
func (d *TokenDoor) SignsIn() bool { return true }

// session is the content of the cookie.
type session struct {
	Token     string    `json:"token"`
	Namespace string    `json:"namespace"`
	Until     time.Time `json:"until"`
}

// Routes implements Door.
func (d *TokenDoor) Routes(mux *http.ServeMux, s *Server) {
	mux.HandleFunc("GET /sign-in", func(w http.ResponseWriter, _ *http.Request) { s.write(w, page{Title: "Sign in", Body: "sign-in"}) })
	mux.HandleFunc("POST /sign-in", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 2*tokenMost)
		who := session{Token: strings.TrimSpace(r.PostFormValue("token")), Namespace: strings.TrimSpace(r.PostFormValue("namespace")), Until: d.now().Add(sessionFor)}
		if who.Namespace == "" {
			who.Namespace = metav1.NamespaceDefault
		}
		if err := d.check(r.Context(), who.Token); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			s.write(w, page{Title: "Sign in", Body: "sign-in", Text: err.Error()})
			return
		}
		d.set(w, d.sealed(who), int(sessionFor.Seconds()))
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
	mux.HandleFunc("POST /sign-out", func(w http.ResponseWriter, r *http.Request) {
		if who, err := d.open(r); err == nil {
			d.forget(who)
		}
		d.set(w, "", -1)
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	})
}

func (d *TokenDoor) set(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: value, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode, MaxAge: age,
	})
}

// check asks the cluster whether it knows the token.
func (d *TokenDoor) check(ctx context.Context, token string) error {
	if token == "" || len(token) > tokenMost {
		return errors.New("Paste a token, as kubectl create token SERVICE-ACCOUNT prints one.") //nolint:revive,staticcheck // a sentence for the page
	}
	c, err := d.client(session{Token: token})
	if err != nil {
		return err
	}
	_, err = c.Core.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return errors.New("The cluster does not know this token, or it has run out.") //nolint:revive,staticcheck // a sentence for the page
	case err != nil:
		return fmt.Errorf("the cluster could not be asked: %w", err)
	}
	return nil
}

func (d *TokenDoor) client(who session) (*kube.Client, error) {
	config := rest.CopyConfig(d.config)
	config.BearerToken = who.Token
	return kube.New(config, who.Namespace)
}

func (d *TokenDoor) sealed(who session) string {
	plain, _ := json.Marshal(who)
	nonce := make([]byte, d.seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return base64.RawURLEncoding.EncodeToString(d.seal.Seal(nonce, nonce, plain, nil))
}

// open returns the session of a request.
func (d *TokenDoor) open(r *http.Request) (session, error) {
	var who session
	c, err := r.Cookie(tokenCookie)
	if err != nil {
		return who, errStranger
	}
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(text) < d.seal.NonceSize() {
		return who, errStranger
	}
	plain, err := d.seal.Open(nil, text[:d.seal.NonceSize()], text[d.seal.NonceSize():], nil)
	if err != nil || json.Unmarshal(plain, &who) != nil || d.now().After(who.Until) {
		return session{}, errStranger
	}
	return who, nil
}

func (w session) key() [sha256.Size]byte {
	return sha256.Sum256([]byte(w.Namespace + "\x00" + w.Token))
}

// Who implements Door.
func (d *TokenDoor) Who(r *http.Request) (*Person, error) {
	who, err := d.open(r)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	g := d.people[who.key()]
	if g == nil {
		g = &guest{}
		g.ctx, g.end = context.WithCancel(d.ctx)
		d.people[who.key()] = g
	}
	g.last = d.now()
	d.mu.Unlock()
	g.once.Do(func() {
		c, err := d.client(who)
		if err == nil {
			g.person = &Person{Client: c}
			g.person.Store, err = watch.Start(g.ctx, c)
		}
		g.err = err
	})
	if g.err != nil {
		d.forget(who)
		if apierrors.IsUnauthorized(g.err) {
			return nil, errStranger
		}
		return nil, g.err
	}
	return g.person, nil
}

// forget ends a visitor's watches.
func (d *TokenDoor) forget(who session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.people[who.key()]; g != nil {
		delete(d.people, who.key())
		g.end()
	}
}

// sweep ends the watches of those who have not looked for a while. A page that is open asks now and then, see stream.
func (d *TokenDoor) sweep() {
	tick := time.NewTicker(restFor / 5)
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		for key, g := range d.people {
			if d.now().Sub(g.last) > restFor {
				delete(d.people, key)
				g.end()
			}
		}
		d.mu.Unlock()
	}
}
