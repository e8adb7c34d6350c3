// Package web serves the page in the browser: the views of package view as HTML, sent again whenever a watch sees a change, and
// the actions of virtctl. Every request to the cluster is made with the rights of the person who looks.
//
// A browser also runs pages of other sites, and names and messages of a cluster are written by other users. So the Host of a
// request must be ours (another site's name may resolve to our address), its Origin too if it changes something, a secret or a
// token must have been shown, the page may load nothing from elsewhere, and all text goes through html/template.
//
// It does not know what a volume's phase means, nor how a machine is started: see view, status and machine.
package web

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/web/watch"
)

// Person is a visitor: a client with their rights, and the objects that they may see.
type Person struct {
	Client *kube.Client
	Store  *watch.Store
}

// Door says who looks.
type Door interface {
	// Who is the person that a request is from; errStranger if it does not say, and what to tell them.
	Who(r *http.Request) (*Person, error)
	// Routes adds the paths by which one comes in.
	Routes(mux *http.ServeMux, s *Server)
	// SignsIn: there is a page to come in by, and one can leave.
	SignsIn() bool
}

// errStranger: the request does not say who it is from.
var errStranger = errors.New("nobody has signed in")

// Server answers browsers.
type Server struct {
	Door Door
	// Hosts are the names under which the page is reached, without ports.
	Hosts []string
	// UploadProxy is the address that uploads are sent to; empty: the address that the cluster reports.
	UploadProxy string
	Log         *slog.Logger
}

// Handler returns the page.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", assetHandler())
	s.Door.Routes(mux, s)
	for path, show := range map[string]func(*http.Request) page{
		"GET /{$}": func(*http.Request) page { return page{Title: "Overview", View: "overview", Nav: "overview"} },
		"GET /machines/{namespace}/{name}": func(r *http.Request) page {
			return page{Title: r.PathValue("name"), View: "machine", Nav: "overview"}.about(r)
		},
		"GET /machines/{namespace}/{name}/console": func(r *http.Request) page {
			return page{Title: "Console of " + r.PathValue("name"), Body: "console", Nav: "overview", Wide: true}.about(r)
		},
		"GET /machines/{namespace}/{name}/screen": func(r *http.Request) page {
			return page{Title: "Screen of " + r.PathValue("name"), Body: "screen", Nav: "overview", Wide: true}.about(r)
		},
		"GET /volumes": func(*http.Request) page { return page{Title: "Volumes", View: "volumes", Nav: "volumes"} },
		"GET /images":  func(*http.Request) page { return page{Title: "Golden images", View: "images", Nav: "images"} },
		"GET /classes": func(*http.Request) page { return page{Title: "Storage classes", View: "classes", Nav: "classes"} },
	} {
		mux.HandleFunc(path, s.known(func(w http.ResponseWriter, r *http.Request, p *Person) {
			shown := show(r)
			shown.Home = p.Client.Namespace
			s.write(w, shown)
		}))
	}
	mux.HandleFunc("GET /new", s.known(s.form))
	mux.HandleFunc("POST /new/manifest", s.known(s.manifest))
	mux.HandleFunc("POST /new", s.known(s.create))
	mux.HandleFunc("GET /stream", s.known(s.stream))
	mux.HandleFunc("POST /machines/{namespace}/{name}/{verb}", s.known(s.act))
	mux.HandleFunc("POST /volumes/{namespace}/{name}/bind", s.known(s.bind))
	mux.HandleFunc("GET /connect/{what}/{namespace}/{name}", s.known(s.connect))
	s.uploadRoutes(mux)
	return s.guard(mux)
}

// known lets in those who have shown who they are.
func (s *Server) known(do func(http.ResponseWriter, *http.Request, *Person)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := s.Door.Who(r)
		switch {
		case errors.Is(err, errStranger) && s.Door.SignsIn() && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate":
			http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
		case errors.Is(err, errStranger):
			s.stranger(w)
		case err != nil:
			s.Log.Info("the cluster is not there", "error", err)
			w.WriteHeader(http.StatusBadGateway)
			s.write(w, page{Title: "The cluster does not answer", Body: "message", Text: err.Error()})
		default:
			do(w, r, p)
		}
	}
}

func (s *Server) stranger(w http.ResponseWriter) {
	w.WriteHeader(http.StatusUnauthorized)
	text := "Open the address that virtctl web has printed last: it has a secret that this browser has not shown, and that is good for one time."
	if s.Door.SignsIn() {
		text = "Sign in first."
	}
	s.write(w, page{Title: "Who is it?", Body: "message", Text: text})
}

// policy is the Content-Security-Policy: the page may load only files of this server. A style that a script makes needs the nonce,
// see console.mjs; data: is for the pointer that noVNC draws.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-%s'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard refuses what does not come from our own page.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nonce := random()
		h := w.Header()
		h.Set("Content-Security-Policy", strings.Replace(policy, "%s", nonce, 1))
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer a form says that it comes from nowhere
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !strings.HasPrefix(r.URL.Path, "/assets/") {
			h.Set("Cache-Control", "no-store")
		}
		switch {
		case !s.ours(r.Host):
			http.Error(w, "this page is not served under that name", http.StatusMisdirectedRequest)
		case !s.sameOrigin(r):
			http.Error(w, "the request comes from another page", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ours reports whether the host is one under which the page is reached.
func (s *Server) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	for _, known := range s.Hosts {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// sameOrigin reports whether the request comes from our page, or from an address that a person typed. A request that changes
// something, and a websocket, must have an Origin.
func (s *Server) sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none", "": // older browsers do not say
	default:
		if r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return false
		}
	}
	origin := r.Header.Get("Origin")
	safe := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
	if origin == "" {
		return safe
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host) && (u.Scheme == "http" || u.Scheme == "https")
}
