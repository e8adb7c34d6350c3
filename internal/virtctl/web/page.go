package web

import (
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"rfc": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}).ParseFS(templateFiles, "templates/*.html"))

// page is the part of a page that is not streamed into it.
type page struct {
	Title           string
	View            string // what is streamed; empty: the page has a body of its own
	Body, Text, Nav string
	Namespace, Name string
	Home            string // the namespace that is offered
	Wide            bool
	Choices         *choices

	Nonce   string
	SignsIn bool
}

// about returns which object the page is about.
func (p page) about(r *http.Request) page {
	p.Namespace, p.Name = r.PathValue("namespace"), r.PathValue("name")
	return p
}

// write writes a page. The nonce is the one that the page's policy has.
func (s *Server) write(w http.ResponseWriter, p page) {
	_, rest, _ := strings.Cut(w.Header().Get("Content-Security-Policy"), "'nonce-")
	p.Nonce, _, _ = strings.Cut(rest, "'")
	p.SignsIn = s.Door.SignsIn()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := templates.ExecuteTemplate(w, "layout", p); err != nil {
		s.Log.Info("a page is gone", "why", err)
	}
}

// assetHandler serves the files in the program: the same for all users, and nothing secret.
func assetHandler() http.Handler {
	files, err := fs.Sub(assetFiles, "assets")
	if err != nil {
		panic(err) // it is compiled in
	}
	serve := http.StripPrefix("/assets/", http.FileServerFS(files))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, ".mjs") || strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8") // whatever this machine thinks of .mjs
		}
		serve.ServeHTTP(w, r)
	})
}
