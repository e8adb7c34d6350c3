package metricsserver

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCrowd: the number of open connections is bounded; one more closes the oldest of them, so a flood of connections locks no client out.
func TestCrowd(t *testing.T) {
	measured := prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_test", Help: "A test"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close() // Serve makes its own
	end, err := Serve(address, slog.New(slog.DiscardHandler), measured)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var crowd []net.Conn
	for range connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		crowd = append(crowd, c)
	}
	get := func(patience time.Duration) (string, error) {
		web := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := web.Get("http://" + address + "/metrics")
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		return string(page), err
	}
	if page, err := get(20 * time.Second); err != nil || !strings.Contains(page, "\nberth_test 0\n") {
		t.Errorf("one more: %v, %q", err, page)
	}
	if err := crowd[0].SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := crowd[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the first of the crowd is still there: %v", err)
	}
}
