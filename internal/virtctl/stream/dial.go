// Package stream opens the streams of a machine's subresources (its console, its screen, its ports) through the API server:
// websockets whose messages are bytes. It does not know what the bytes are.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Protocol is the protocol of kubevirt.io's streams: messages are plain bytes.
const Protocol = "plain.kubevirt.io"

// Dial opens a stream to a path of the API server.
func Dial(ctx context.Context, config *rest.Config, path string) (*websocket.Conn, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	d := &dialer{Dialer: websocket.Dialer{
		TLSClientConfig: tls, Proxy: http.ProxyFromEnvironment, Subprotocols: []string{Protocol}, HandshakeTimeout: time.Minute,
	}}
	if config.Proxy != nil {
		d.Proxy = config.Proxy
	}
	// The configuration's credentials are added by round trippers.
	dress, err := rest.HTTPWrappersForConfig(config, d)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	target, err := address(config.Host, path)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", target, err)
	}
	response, err := dress.RoundTrip(request)
	if err != nil {
		return nil, refusal(response, err)
	}
	return d.conn, nil
}

type dialer struct {
	websocket.Dialer
	conn *websocket.Conn
}

// RoundTrip dials; the answer of a server that refuses comes with the error.
func (d *dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, response, err := d.DialContext(r.Context(), r.URL.String(), r.Header)
	d.conn = conn
	return response, err
}

func address(host, path string) (string, error) {
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return "", fmt.Errorf("read the cluster's address %q: %w", host, err)
	}
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	return u.JoinPath(path).String(), nil
}

// refusal returns what the server says instead of opening a stream.
func refusal(response *http.Response, err error) error {
	if response == nil || !errors.Is(err, websocket.ErrBadHandshake) {
		return err
	}
	const enough = 1 << 10
	text, readErr := io.ReadAll(io.LimitReader(response.Body, enough))
	if readErr != nil || len(text) == 0 {
		return fmt.Errorf("the cluster answers %s", response.Status)
	}
	return errors.New(message(text))
}

// message returns the sentence in an answer of the API server.
func message(text []byte) string {
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(text))
}
