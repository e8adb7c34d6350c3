// Package ask reads what a pod of ours says about itself: one small document at one path of its own server. A pod that does
// not answer is no reason for a controller to stop.
//
// It does not know what the documents mean.
package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A pod that does not answer quickly must not hold up the other ones; a document of a few lines is small.
const (
	patience = time.Second
	longest  = 64 << 10
)

// At asks the pod at an address for a document at that path, over the pod network.
func At[T any](path string) func(ctx context.Context, address string) (T, error) {
	client := &http.Client{Timeout: patience}
	return func(ctx context.Context, address string) (T, error) {
		var document T
		url := "http://" + address + path
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return document, fmt.Errorf("ask %s: %w", url, err)
		}
		answer, err := client.Do(request)
		if err != nil {
			return document, fmt.Errorf("ask: %w", err) // it names the address
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			return document, fmt.Errorf("ask %s: %s", url, answer.Status)
		}
		if err := json.NewDecoder(io.LimitReader(answer.Body, longest)).Decode(&document); err != nil {
			return document, fmt.Errorf("read what %s says: %w", url, err)
		}
		return document, nil
	}
}
