//go:build e2e

package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// floodReviews: large reviews, in the name of an administrator, and connections that never say a word, for as long as the victim makes volumes.
func floodReviews(h *hostile) {
	s, err := h.own.Client.CoreV1().Services("berth").Get(h.own.Context(), "berth-webhook", metav1.GetOptions{})
	if err != nil {
		h.t().Fatal(err)
	}
	at := net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].Port))
	body := bytes.Repeat([]byte(" "), 6*fixture.MiB)
	copy(body, h.reviewOfClone("flood"))
	asked := h.meanwhile(12, func(ctx context.Context, to *http.Client) bool {
		return h.isAnswered(ctx, to, http.MethodPost, "https://"+at+"/authorise/datavolumes", "", body)
	}, func(ctx context.Context) { mute(ctx, at) })
	if asked == 0 {
		h.t().Error("no review arrived")
	}
}

// floodScrapes: requests for the metrics of the controllers, without a token and with invalid tokens, and connections that never
// send a request. Authorized clients are still served.
func floodScrapes(h *hostile) {
	var controllers []string
	for _, p := range h.parts() {
		if p.Labels["app.kubernetes.io/component"] == "controller" {
			controllers = append(controllers, net.JoinHostPort(p.Status.PodIP, "8080"))
		}
	}
	h.panics() // the administrator's token is known
	var n atomic.Int64
	asked := h.meanwhile(12, func(ctx context.Context, to *http.Client) bool {
		i := n.Add(1)
		token := []string{"", fmt.Sprintf("%d.nobodys.token", i)}[i/2%2]
		return h.isAnswered(ctx, to, http.MethodGet, "https://"+controllers[int(i)%len(controllers)]+"/metrics", token, nil)
	}, func(ctx context.Context) { mute(ctx, controllers[int(n.Load())%len(controllers)]) })
	if asked == 0 {
		h.t().Error("no request arrived")
	}
}

// meanwhile has many clients ask again and again, and others hold connections, while the victim makes volumes and clones. None is answered. It returns how
// often they asked.
func (h *hostile) meanwhile(clients int, ask func(context.Context, *http.Client) (answered bool), hold func(context.Context)) int64 {
	h.t().Helper()
	ctx, cancel := context.WithCancel(h.own.Context())
	var all sync.WaitGroup
	var asked, answered atomic.Int64
	pause := func() { // the nodes and the attacker share the processors of one machine: what is tested is not who has more of them
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	for range clients {
		all.Go(func() {
			to := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			for ctx.Err() == nil {
				if ask(ctx, to) {
					answered.Add(1)
				}
				asked.Add(1)
				pause()
			}
		})
	}
	for range 300 { // more than there are places for strangers
		all.Go(func() {
			for ctx.Err() == nil {
				hold(ctx)
				pause()
			}
		})
	}
	name := strings.ReplaceAll(h.t().Name()[strings.LastIndex(h.t().Name(), "/")+1:], "_", "-")
	for n := range 20 { // clones have to be checked
		dv := h.clone(fmt.Sprintf("%s-clone-%d", name, n))
		dv.Namespace, dv.Spec.Source = h.victim.Namespace, h.source()
		if err := h.victim.Kube.Create(h.own.Context(), dv, client.DryRunAll); err != nil {
			h.t().Errorf("the API server could not have a clone checked: %v", err)
		}
	}
	for n := range 2 {
		h.served(fmt.Sprintf("%s-%d", name, n))
	}
	h.machineRuns()
	if n := h.panics(); n != 0 { // the administrator's scrape
		h.t().Errorf("reconcilers panicked %d times", n)
	}
	cancel()
	all.Wait()
	if n := answered.Load(); n > 0 {
		h.t().Errorf("%d of %d requests were answered", n, asked.Load())
	}
	h.t().Logf("asked %d times", asked.Load())
	return asked.Load()
}

// isAnswered sends a request and says whether there is anything in the answer.
func (h *hostile) isAnswered(ctx context.Context, to *http.Client, method, url, token string, body []byte) bool {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return false
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := to.Do(req)
	if err != nil {
		return false // it was closed on us: we are a crowd
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, fixture.MiB))
	return answer.StatusCode == http.StatusOK || len(text) > 0
}

// mute holds a connection and says nothing.
func mute(ctx context.Context, at string) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", at)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_, _ = io.Copy(io.Discard, c)
}
