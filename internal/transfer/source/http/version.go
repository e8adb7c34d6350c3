package http

import (
	"fmt"
	nethttp "net/http"
	"time"
)

// version has the headers by which two states of a blob can be told apart.
type version struct {
	own      string // what Request.Validator names
	etag     string // strong ones only: a weak one allows different bytes
	modified string // Last-Modified, verbatim
	timed    bool   // the server understands If-Range with it
}

// settled is how long a file must be unchanged before its time identifies the version: it is given in seconds, by a clock that may
// differ from the one of the server's answers (RFC 9110, 8.8.2.2, says a minute).
const settled = time.Minute

// answered returns when a server says that it answered.
func answered(h nethttp.Header) time.Time {
	if at, err := nethttp.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return time.Now()
}

// weak returns why two states of the blob might bear the same version, at a time; empty if they cannot.
func (v version) weak(now time.Time) string {
	if v.none() {
		return "gives neither a strong ETag nor a time of its last change"
	}
	if changed, err := nethttp.ParseTime(v.modified); v.onlyTime() && (err != nil || now.Sub(changed) < settled) {
		return "gives no strong ETag and was changed within the last minute"
	}
	return ""
}

// same holds if two answers say the same of the version.
func (v version) same(now version) bool {
	return v.own == now.own && v.etag == now.etag && v.modified == now.modified
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

// contradicts reports whether the two versions cannot be the same bytes. A validator that only one of them has is no
// contradiction: servers leave validators out of some answers, and Apache calls a tag weak as long as the file is younger than a
// second.
func (v version) contradicts(now version) bool {
	if v.own != "" && now.own != "" {
		return v.own != now.own
	}
	if v.etag != "" && now.etag != "" {
		return v.etag != now.etag
	}
	return v.modified != "" && now.modified != "" && v.modified != now.modified
}

// condition makes a request fail if the blob has changed. If-Range is for tags, and for times if the server was seen to understand
// them: servers count a time as too weak for it while the file is young, and would send everything although nothing changed.
func (r *Request) condition(v version, set map[string]string) {
	switch {
	case v.own != "" && r.Condition != "":
		set[r.Condition] = v.own
	case v.etag != "":
		set["If-Range"] = v.etag
	case v.modified != "":
		set["If-Unmodified-Since"] = v.modified
		if v.timed {
			set["If-Range"] = v.modified
		}
	}
}

func (v version) none() bool { return v.own == "" && v.etag == "" && v.modified == "" }

// onlyTime holds if a time is all that tells versions apart.
func (v version) onlyTime() bool { return v.own == "" && v.etag == "" && v.modified != "" }

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
