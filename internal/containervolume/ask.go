package containervolume

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Path is the path of requests to a container, and Port the default port.
const (
	Path = "/volume"
	Port = 443
)

// Patience is how long an answer may take. A container that needs longer answers 202 and is asked again.
const Patience = 30 * time.Second

// Request is the document that a container is asked with. It is the same each time, for PUT and for DELETE.
type Request struct {
	Namespace string `json:"namespace"`
	Machine   string `json:"machine"`
	// UID of the machine: another machine of the same name has another.
	UID    string `json:"uid"`
	Volume string `json:"volume"`
	// Size is a quantity as Kubernetes writes it; unset if the machine does not say.
	Size string `json:"size,omitempty"`
}

// ErrNotYet says that the container is at it and has to be asked again.
var ErrNotYet = errors.New("it is not done yet")

// Client asks one container.
type Client struct {
	Address string // of its pod
	Port    int
	TLS     *tls.Config // says whom to trust, whose certificate it must be, and who we are
}

// Make asks for the volume. An error with ErrRefused in it is an answer that cannot be used.
func (c Client) Make(ctx context.Context, r Request) (*kubevirt.MadeSource, error) {
	status, body, err := c.do(ctx, http.MethodPut, r)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusOK || status == http.StatusCreated:
		return Read(body)
	case status == http.StatusAccepted:
		return nil, ErrNotYet
	}
	return nil, refusal(http.MethodPut, status, body)
}

// Delete asks to delete the volume. That there is none is success.
func (c Client) Delete(ctx context.Context, r Request) error {
	status, body, err := c.do(ctx, http.MethodDelete, r)
	switch {
	case err != nil:
		return err
	case status == http.StatusAccepted:
		return ErrNotYet
	case status/100 == 2 || status == http.StatusNotFound:
		return nil
	}
	return refusal(http.MethodDelete, status, body)
}

// do sends a request to the pod itself: it uses no proxy and follows no redirect.
func (c Client) do(ctx context.Context, method string, r Request) (int, []byte, error) {
	document, err := json.Marshal(r)
	if err != nil {
		return 0, nil, fmt.Errorf("write the request: %w", err)
	}
	url := "https://" + net.JoinHostPort(c.Address, strconv.Itoa(c.Port)) + Path
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(document))
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/yaml, application/json")
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: longest, TLSClientConfig: c.TLS},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, asked(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, longest+1))
	if err != nil {
		return 0, nil, asked(ctx, fmt.Errorf("read the answer of %s %s: %w", method, url, err))
	}
	return answer.StatusCode, body, nil
}

// asked says of an answer that did not come in time that it did not.
func asked(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %s: %w", Patience, err)
	}
	return err
}

// refusal is an answer that says no. A redirect does: what Berth can reach is not for a container to choose.
func refusal(method string, status int, body []byte) error {
	text := fmt.Sprintf("%s %s was answered with %d %s", method, Path, status, http.StatusText(status))
	if status/100 == 3 {
		return fmt.Errorf("%w: %s, and Berth follows no redirect", ErrRefused, text)
	}
	if said := words(body); said != "" {
		text += ": " + said
	}
	return fmt.Errorf("%w: %s", ErrRefused, text)
}

// words are the first of what a container said, fit for a message.
func words(body []byte) string {
	text := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(body[:min(len(body), 400)]), ""))
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 200)]
}
