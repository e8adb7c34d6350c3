package ask

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAt(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = w.Write([]byte(`{"far": 42}`))
		case "/endless":
			_, _ = w.Write([]byte(`{"far": 42, "more": "` + strings.Repeat("x", longest)))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	if got, err := At[map[string]int]("/good")(t.Context(), address); err != nil || got["far"] != 42 {
		t.Errorf("a good answer: %v, %v", got, err)
	}
	for _, path := range []string{"/endless", "/nothing"} {
		if _, err := At[map[string]any](path)(t.Context(), address); err == nil || !strings.Contains(err.Error(), address+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	server.Close()
	if _, err := At[map[string]any]("/good")(t.Context(), address); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("a pod that is gone: %v", err)
	}
}
