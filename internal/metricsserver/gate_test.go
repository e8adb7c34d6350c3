package metricsserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-vm/berth/internal/pki"
)

// TestGate: a good token is let in and asked about again after a while; others cost the API server a bounded number of questions,
// however many there are, and do not lock out clients that were let in before.
func TestGate(t *testing.T) {
	now, asked, away := time.Unix(1_800_000_000, 0), map[string]int{}, false
	good := map[string]bool{"good": true}
	g := newGate(func(_ context.Context, token string) (bool, error) {
		asked[token]++
		if away {
			return false, errors.New("the API server is away")
		}
		return good[token], nil
	}, func() time.Time { return now })
	judge := func(header string) int {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		return g.judge(r)
	}
	step := func(what string, after time.Duration, header string, code, times int) {
		t.Helper()
		now = now.Add(after)
		if got := judge(header); got != code || asked["good"] != times {
			t.Errorf("%s: %d, the API server asked %d times; want %d, %d", what, got, asked["good"], code, times)
		}
	}
	step("no token", 0, "", http.StatusUnauthorized, 0)
	step("another kind", 0, "Basic eA==", http.StatusUnauthorized, 0)
	step("an empty one", 0, "Bearer ", http.StatusUnauthorized, 0)
	step("a good one", 0, "Bearer good", http.StatusOK, 1)
	step("a moment later", time.Second, "Bearer good", http.StatusOK, 1)
	step("a bad one", time.Second, "Bearer bad", http.StatusForbidden, 1)
	step("right after it", 0, "Bearer worse", http.StatusTooManyRequests, 1)
	for i := range 10_000 {
		now = now.Add(time.Millisecond)
		judge(fmt.Sprintf("Bearer %d", i))
	}
	if len(asked) > 105 {
		t.Errorf("the API server was asked about %d tokens in ten seconds", len(asked))
	}
	step("the good one in the flood", time.Second, "Bearer good", http.StatusOK, 1)
	judge("Bearer x")
	step("after a while", askAgain, "Bearer good", http.StatusOK, 2)
	away = true
	step("the API server is away", askAgain, "Bearer good", http.StatusOK, 3)
	step("away, and nobody knows the token", time.Second, "Bearer new", http.StatusServiceUnavailable, 3)
	step("away for long", forget, "Bearer good", http.StatusServiceUnavailable, 4)
	away = false
	step("it is back", time.Second, "Bearer good", http.StatusOK, 5)
	good["good"] = false
	step("the right is taken away", askAgain, "Bearer good", http.StatusForbidden, 6)
	for i := range 3 * mostGood {
		token := fmt.Sprintf("many-%d", i)
		good[token] = true
		now = now.Add(time.Second)
		if judge("Bearer "+token) != http.StatusOK {
			t.Fatalf("%s is kept out", token)
		}
	}
	if len(g.good) > mostGood {
		t.Errorf("%d tokens are known", len(g.good))
	}
}

// TestTLS: with a certificate there is no page without a token, nor without TLS; the certificate may come later.
func TestTLS(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	end, err := Server{Address: address, TLS: dir, From: Registry(prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_test", Help: "A test"})),
		Log: slog.New(slog.DiscardHandler), May: func(_ context.Context, token string) (bool, error) { return token == "good", nil }}.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	authority, err := pki.New("test", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate())
	get := func(url, token string) (int, string) {
		to := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "metrics"}}}
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		answer, err := to.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text)
	}
	if code, text := get("https://"+address+"/metrics", "good"); code != 0 {
		t.Errorf("without a certificate: %d %s", code, text)
	}
	pair, err := authority.Issue(pki.Leaf{Name: "metrics", DNSNames: []string{"metrics"}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, text := get("https://"+address+"/metrics", "good"); code != http.StatusOK || len(text) < 100 {
		t.Errorf("with a good token: %d %s", code, text)
	}
	time.Sleep(2 * pause) //nolint:forbidigo // before it, a token that is not known has to wait
	if code, text := get("https://"+address+"/metrics", "bad"); code != http.StatusForbidden || text != "" {
		t.Errorf("with a bad token: %d %s", code, text)
	}
	if code, text := get("http://"+address+"/metrics", "good"); code == http.StatusOK {
		t.Errorf("without TLS: %d %s", code, text)
	}
}
