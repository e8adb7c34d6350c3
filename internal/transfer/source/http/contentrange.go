package http

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ContentRange is a parsed Content-Range. Size is -1 if the server does not know it, and First and Last are -1 in the
// form that comes with 416.
type ContentRange struct{ First, Last, Size int64 }

var errContentRange = errors.New("no valid Content-Range")

// ParseContentRange reads "bytes 0-9/100", "bytes 0-9/*" or "bytes */100".
func ParseContentRange(s string) (ContentRange, error) {
	bad := fmt.Errorf("%w in %q", errContentRange, s)
	unit, rest, ok := strings.Cut(strings.TrimSpace(s), " ")
	if !ok || !strings.EqualFold(unit, "bytes") {
		return ContentRange{}, bad
	}
	span, total, ok := strings.Cut(strings.TrimSpace(rest), "/")
	if !ok {
		return ContentRange{}, bad
	}
	r := ContentRange{First: -1, Last: -1, Size: -1}
	if total != "*" {
		if r.Size, ok = number(total); !ok {
			return ContentRange{}, bad
		}
	}
	if span == "*" {
		if r.Size < 0 {
			return ContentRange{}, bad
		}
		return r, nil
	}
	first, last, ok := strings.Cut(span, "-")
	if !ok {
		return ContentRange{}, bad
	}
	var ok1, ok2 bool
	r.First, ok1 = number(first)
	r.Last, ok2 = number(last)
	if !ok1 || !ok2 || r.First > r.Last || r.Size >= 0 && r.Last >= r.Size {
		return ContentRange{}, bad
	}
	return r, nil
}

// number reads digits and nothing else: no sign, no space.
func number(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}
