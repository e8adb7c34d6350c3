package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestNotFromHere: the guest speaks from the pod's own addresses, and gets no answer.
func TestNotFromHere(t *testing.T) {
	own := func() ([]net.Addr, error) {
		_, n, err := net.ParseCIDR("10.244.1.5/24")
		n.IP = net.ParseIP("10.244.1.5")
		return []net.Addr{n}, err
	}
	h := notFromHere(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), own)
	for from, want := range map[string]int{
		"10.244.1.1:40000": http.StatusOK, "[fd00::1]:40000": http.StatusOK,
		"127.0.0.1:40000": http.StatusForbidden, "[::1]:40000": http.StatusForbidden, "127.8.8.8:1": http.StatusForbidden,
		"10.244.1.5:40000": http.StatusForbidden, "nobody": http.StatusForbidden,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/returns", nil), httptest.NewRecorder()
		r.RemoteAddr = from
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: %d", from, w.Code)
		}
	}
}
