package http

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"
)

// version is what a server says that lets one tell two states of a blob apart.
type version struct {
	own      string // what Request.Validator names
	etag     string // strong ones only: a weak one allows different bytes
	modified string // Last-Modified, verbatim
}

func (r *Request) version(h nethttp.Header) version {
	var v version
	if r.Immutable {
		return v
	}
	if r.Validator != "" {
		v.own = h.Get(r.Validator)
	}
	if etag := h.Get("ETag"); len(etag) >= 2 && etag[0] == '"' && etag[len(etag)-1] == '"' {
		v.etag = etag
	}
	if m := h.Get("Last-Modified"); m != "" {
		if _, err := nethttp.ParseTime(m); err == nil {
			v.modified = m
		}
	}
	return v
}

// contradicts holds if the two cannot be the same bytes. What only one of them says contradicts nothing: servers leave
// validators out of some answers, and Apache calls a tag weak as long as the file is younger than a second.
func (v version) contradicts(now version) bool {
	if v.own != "" && now.own != "" {
		return v.own != now.own
	}
	if v.etag != "" && now.etag != "" {
		return v.etag != now.etag
	}
	return v.modified != "" && now.modified != "" && v.modified != now.modified
}

// condition makes a request fail where the blob has changed. If-Range is for tags alone: servers count a time as too
// weak for it while the file is young, and would send everything although nothing changed.
func (r *Request) condition(v version, set map[string]string) {
	switch {
	case v.own != "" && r.Condition != "":
		set[r.Condition] = v.own
	case v.etag != "":
		set["If-Range"] = v.etag
	case v.modified != "":
		set["If-Unmodified-Since"] = v.modified
	}
}

func (v version) none() bool { return v == version{} }

func (v version) String() string {
	switch {
	case v.own != "":
		return "version:" + v.own
	case v.etag != "":
		return "etag:" + v.etag
	case v.modified != "":
		return "modified:" + v.modified
	}
	return ""
}

func (v version) differs(now version) string {
	return fmt.Sprintf("its version was %s and is now %s", v.orNone(), now.orNone())
}

func (v version) orNone() string {
	if v.none() {
		return "not given"
	}
	return v.String()
}

// contentRange is a parsed Content-Range; size is -1 if the server does not know it, and first and last are -1 in the
// form that comes with 416.
type contentRange struct{ first, last, size int64 }

var errContentRange = errors.New("no valid Content-Range")

// parseContentRange reads "bytes 0-9/100", "bytes 0-9/*" or "bytes */100".
func parseContentRange(s string) (contentRange, error) {
	bad := fmt.Errorf("%w in %q", errContentRange, s)
	unit, rest, ok := strings.Cut(strings.TrimSpace(s), " ")
	if !ok || !strings.EqualFold(unit, "bytes") {
		return contentRange{}, bad
	}
	span, total, ok := strings.Cut(strings.TrimSpace(rest), "/")
	if !ok {
		return contentRange{}, bad
	}
	r := contentRange{first: -1, last: -1, size: -1}
	if total != "*" {
		if r.size, ok = number(total); !ok {
			return contentRange{}, bad
		}
	}
	if span == "*" {
		if r.size < 0 {
			return contentRange{}, bad
		}
		return r, nil
	}
	first, last, ok := strings.Cut(span, "-")
	if !ok {
		return contentRange{}, bad
	}
	var ok1, ok2 bool
	r.first, ok1 = number(first)
	r.last, ok2 = number(last)
	if !ok1 || !ok2 || r.first > r.last || r.size >= 0 && r.last >= r.size {
		return contentRange{}, bad
	}
	return r, nil
}

// number reads digits and nothing else: no sign, no space.
func number(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}
