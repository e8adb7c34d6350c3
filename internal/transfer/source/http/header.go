package http

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	nethttp "net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
)

// headers returns those the task asks for: its own, those of its secrets, and basic authentication.
func headers(t task.HTTP, u *url.URL) (nethttp.Header, error) {
	h := nethttp.Header{"User-Agent": {httpaccess.UserAgent}}
	for i, line := range t.Headers {
		if err := addHeader(h, line, fmt.Sprintf("extra header %d", i+1)); err != nil {
			return nil, err
		}
	}
	if t.HeadersDir != "" {
		files, err := httpaccess.ReadDir(t.HeadersDir)
		if err != nil {
			return nil, fmt.Errorf("read secret headers: %w", err)
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := addHeader(h, files[name], fmt.Sprintf("the secret header in %s", name)); err != nil {
				return nil, err
			}
		}
	}
	c, ok, err := httpaccess.Login(t.Access)
	if err != nil {
		return nil, err
	}
	if !ok && u.User != nil {
		c.User = u.User.Username()
		c.Secret, _ = u.User.Password()
		ok = true
	}
	if ok {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.User+":"+c.Secret)))
	}
	return h, nil
}

// addHeader adds "Name: value". The error names what it came from and never its value, which may be secret.
func addHeader(h nethttp.Header, line, from string) error {
	name, value, ok := strings.Cut(line, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return task.Errorf(task.BadTask, "%s is not of the form \"Name: value\"", from)
	}
	switch nethttp.CanonicalHeaderKey(name) {
	case "Range", "If-Range", "If-Match", "If-Unmodified-Since", "Accept-Encoding", "Connection", "Content-Length":
		return task.Errorf(task.BadTask, "%s is %q, which the worker sets itself: remove it", from, name)
	}
	h.Add(name, value)
	return nil
}

// redirectLimit is the usual one (curl's default is 50, browsers' 20, Go's 10).
const redirectLimit = 10

// redirect follows redirects, but sends nothing of the task to another host: neither credentials nor extra headers (which often
// are credentials), nor the URL with its query as a Referer. A redirect from another host back to the first gets none either.
func redirect(r Request) func(*nethttp.Request, []*nethttp.Request) error {
	return func(next *nethttp.Request, via []*nethttp.Request) error {
		if len(via) > redirectLimit {
			return errors.New("more than 10 redirects: they probably go in a circle")
		}
		next.Header.Del("Referer")
		if r.own(next) {
			return nil
		}
		next.Header.Del("Authorization")
		for name := range r.Header {
			next.Header.Del(name)
		}
		next.Header.Set("User-Agent", httpaccess.UserAgent)
		return nil
	}
}

// own holds if a request, and all the redirects that led to it, stayed with the URL's own host.
func (r *Request) own(req *nethttp.Request) bool {
	for sameOrigin(req.URL, r.URL) {
		if req.Response == nil {
			return true
		}
		req = req.Response.Request
	}
	return false
}

// sameOrigin holds if what may be told to the one may be told to the other: the same host and port, and no step from
// https down to http. A server's redirect from its plain port up to its TLS port stays within.
func sameOrigin(to, from *url.URL) bool {
	if !strings.EqualFold(to.Hostname(), from.Hostname()) {
		return false
	}
	if to.Scheme == "https" && from.Scheme == "http" {
		return port(to) == "443" && port(from) == "80"
	}
	return to.Scheme == from.Scheme && port(to) == port(from)
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
