// Package probe reads what a pod of ours says about itself: one small document at one path of its own server. A pod that does
// not answer is no reason for a controller to stop, nor to wait.
//
// It does not know what the documents mean, and whether the pod is ours its callers know.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An answer comes quickly or not at all; a document of a few lines is small.
const (
	patience = 5 * time.Second
	longest  = 64 << 10
)

// At asks pods for a document at that port and path, over the pod network. It never waits: it returns the answer to the previous
// question, and ErrNoAnswerYet the first time. Proxies and redirects are not followed: a pod could name any address that only the
// controller can reach.
func At[T any](port int, path string) func(pod *corev1.Pod) (T, error) {
	client := &http.Client{
		Timeout:       patience,
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: longest},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	aside := &Aside[types.UID, T]{Patience: patience}
	return func(pod *corev1.Pod) (T, error) {
		if pod.Status.PodIP == "" {
			var none T
			return none, errors.New("the pod has no address")
		}
		url := "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)) + path
		return aside.Latest(pod.UID, func(ctx context.Context) (T, error) { return document[T](ctx, client, url) })
	}
}

func document[T any](ctx context.Context, client *http.Client, url string) (T, error) {
	var document T
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
