//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// reader is somebody who may read metrics, and whom they trust.
type reader struct {
	*framework.Env
	token     string
	authority string // PEM
}

// newReader makes an account in the test's namespace that may GET /metrics.
func newReader(e *framework.Env) *reader {
	e.T.Helper()
	ctx, name := e.Context(), "metrics-"+e.Namespace
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: e.Namespace, Name: "reader"}}}
	r := &reader{Env: e, token: token(e, "reader")}
	if _, err := e.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		e.T.Fatal(err)
	}
	if _, err := e.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		e.T.Fatal(err)
	}
	e.T.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_ = e.Client.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
		_ = e.Client.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
	})
	bundle, err := e.Client.CoreV1().ConfigMaps("berth").Get(ctx, "berth-metrics-ca", metav1.GetOptions{})
	if err != nil {
		e.T.Fatal(err)
	}
	r.authority = bundle.Data["ca.crt"]
	return r
}

// token is one of an account of the test's namespace, which is made for it.
func token(e *framework.Env, name string) string {
	e.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := e.Client.CoreV1().ServiceAccounts(e.Namespace).Create(e.Context(), account, metav1.CreateOptions{}); err != nil {
		e.T.Fatal(err)
	}
	made, err := e.Client.CoreV1().ServiceAccounts(e.Namespace).CreateToken(e.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		e.T.Fatal(err)
	}
	return made.Status.Token
}

// serverName is the name in the certificate of the programs of a namespace.
func serverName(namespace string) string { return "berth-metrics." + namespace + ".svc" }

// ask asks a pod for its metrics, with a token if there is one.
func (r *reader) ask(ctx context.Context, p *corev1.Pod, token string) (code int, page string, err error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(r.authority))
	to := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: serverName(p.Namespace), MinVersion: tls.VersionTLS12}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(p.Status.PodIP, "8080")+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := to.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// page is what a pod shows.
func (r *reader) page(p *corev1.Pod) (page string) {
	r.T.Helper()
	r.Wait("the metrics of "+p.Name, patience, func(ctx context.Context) (bool, string) {
		code, text, err := r.ask(ctx, p, r.token)
		page = text
		return err == nil && code == http.StatusOK, fmt.Sprint(code, err)
	})
	return page
}

// TestMetricsNeedAToken: every program shows its metrics to those whose token may have them, over TLS that can be checked, and to nobody else.
func TestMetricsNeedAToken(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, other := newReader(b.Env), token(b.Env, "nobody")
	seen := map[string]bool{}
	for _, namespace := range []string{"berth", "berth-node"} {
		all, err := b.Client.CoreV1().Pods(namespace).List(b.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component in (controller, uploadproxy, node)"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			p := &all.Items[i]
			if r.page(p) == "" {
				t.Errorf("%s shows nothing", p.Name)
			}
			seen[p.Labels["app.kubernetes.io/component"]] = true
			for token, want := range map[string]int{"": http.StatusUnauthorized, other: http.StatusForbidden} {
				b.Wait("an answer of "+p.Name, patience, func(ctx context.Context) (bool, string) { // another test may flood it
					code, page, err := r.ask(ctx, p, token)
					if code == http.StatusOK || page != "" {
						t.Errorf("%s shows its metrics to anybody: %d", p.Name, code)
					}
					return code == want, fmt.Sprint(code, err)
				})
			}
			if text, err := fetch(b.Context(), "http://"+net.JoinHostPort(p.Status.PodIP, "8080")+"/metrics"); err == nil && len(text) > 200 {
				t.Errorf("%s shows its metrics without TLS: %.100s", p.Name, text)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("only %v were asked", seen)
	}
}
