//go:build e2e

package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestMetricsNeedAToken: every program serves its metrics to clients whose token allows it, over TLS that can be checked, and to no others.
func TestMetricsNeedAToken(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	r, other := fixture.NewMetricsReader(b.Env), fixture.AccountToken(b.Env, "nobody")
	seen := map[string]bool{}
	for _, namespace := range []string{"berth", "berth-node"} {
		all, err := b.Client.CoreV1().Pods(namespace).List(b.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component in (controller, uploadproxy, node)"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			p := &all.Items[i]
			if r.Page(p) == "" {
				t.Errorf("%s shows nothing", p.Name)
			}
			seen[p.Labels["app.kubernetes.io/component"]] = true
			for token, want := range map[string]int{"": http.StatusUnauthorized, other: http.StatusForbidden} {
				b.Wait("an answer of "+p.Name, fixture.Patience, func(ctx context.Context) (bool, string) { // another test may flood it
					code, page, err := r.Ask(ctx, p, token)
					if code == http.StatusOK || page != "" {
						t.Errorf("%s shows its metrics to anybody: %d", p.Name, code)
					}
					return code == want, fmt.Sprint(code, err)
				})
			}
			if text, err := fixture.Fetch(b.Context(), "http://"+net.JoinHostPort(p.Status.PodIP, "8080")+"/metrics"); err == nil && len(text) > 200 {
				t.Errorf("%s shows its metrics without TLS: %.100s", p.Name, text)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("only %v were asked", seen)
	}
}
