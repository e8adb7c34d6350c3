package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// process is the controller as it is seen from outside.
type process struct {
	pid     int
	metrics string
}

// usage is the processor time and memory that a process has used so far.
type usage struct {
	writes int     // requests that change something
	cpu    float64 // seconds
	rss    int64   // bytes, now
}

func (p *process) usage(ctx context.Context) (usage, error) {
	var u usage
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metrics, nil)
	if err != nil {
		return u, fmt.Errorf("ask for metrics: %w", err)
	}
	answer, err := httpClient.Do(req)
	if err != nil {
		return u, fmt.Errorf("ask for metrics: %w", err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || !strings.HasPrefix(name, "rest_client_requests_total{") || strings.Contains(name, `method="GET"`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return u, fmt.Errorf("read metric %s: %w", name, err)
		}
		u.writes += int(n)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return u, fmt.Errorf("read the controller's statistics: %w", err)
	}
	// After the command in brackets come the fields from the third on: user and system time are the 14th and 15th, the
	// resident pages the 24th. Time is in hundredths of a second on every Linux there is.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return u, fmt.Errorf("read the controller's statistics: only %d fields", len(fields))
	}
	var ticks [2]float64
	for i := range ticks {
		if ticks[i], err = strconv.ParseFloat(fields[11+i], 64); err != nil {
			return u, fmt.Errorf("read the controller's CPU time: %w", err)
		}
	}
	pages, err := strconv.ParseInt(fields[21], 10, 64)
	if err != nil {
		return u, fmt.Errorf("read the controller's memory: %w", err)
	}
	u.cpu, u.rss = (ticks[0]+ticks[1])/100, pages*int64(os.Getpagesize())
	return u, nil
}

// httpClient takes any certificate: servers here are of this process, on loopback, and make their own.
var httpClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above
