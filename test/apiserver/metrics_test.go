//go:build apiserver

package apiserver

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/metricsserver"
)

// TestWhoMayReadMetrics: the API server says whose a token is and whether they may GET /metrics, and our accounts may ask it.
func TestWhoMayReadMetrics(t *testing.T) {
	installRights(t)
	clients, err := kubernetes.NewForConfig(baseCfg)
	must(t, err)
	token := func(name string) string {
		create(t, admin, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}})
		made, err := clients.CoreV1().ServiceAccounts(team).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		must(t, err)
		return made.Status.Token
	}
	prometheus, nobody := token("prometheus"), token("nobody")
	create(t, admin, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "berth-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: team, Name: "prometheus"}}})
	for _, account := range []string{"berth:berth-controller", "berth:cdi-uploadproxy", "berth-node:berth-node"} {
		config := as(account)
		web, err := rest.HTTPClientFor(config)
		must(t, err)
		reviews := &metricsserver.Reviews{URL: config.Host, Client: web}
		eventually(t, "the right of Prometheus is known", func() (bool, error) { return reviews.May(t.Context(), prometheus) })
		for _, token := range []string{nobody, "x", prometheus[:len(prometheus)-4] + "AAAA"} {
			if may, err := reviews.May(t.Context(), token); may || err != nil {
				t.Errorf("%s lets %.20s in: %v", account, token, err)
			}
		}
	}
}

// TestMetricsCertificates: the controller makes the certificates of metrics with the rights that it has, for its own namespace and for that of node agents,
// and leaves what is good.
func TestMetricsCertificates(t *testing.T) {
	installRights(t)
	controller, err := client.New(as("berth:berth-controller"), client.Options{Scheme: scheme})
	must(t, err)
	keys := installkeys.NewMetrics(controller, cluster.New(controller, events.NewFakeRecorder(1), clock.RealClock{}), home, true)
	seen := map[string]string{}
	for range 2 {
		must(t, keys.Sync(context.Background()))
		var bundle corev1.ConfigMap
		must(t, admin.Get(t.Context(), client.ObjectKey{Namespace: home, Name: installkeys.MetricsAuthority}, &bundle))
		for _, namespace := range []string{home, installkeys.NodeNamespace} {
			var s corev1.Secret
			must(t, admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: installkeys.MetricsSecret}, &s))
			if string(s.Data["ca.crt"]) != bundle.Data["ca.crt"] || len(s.Data["tls.key"]) == 0 {
				t.Errorf("%s: another authority than Prometheus is to trust", namespace)
			}
			if before := seen[namespace]; before != "" && before != string(s.Data["tls.crt"]) {
				t.Errorf("%s: a good certificate was replaced", namespace)
			}
			seen[namespace] = string(s.Data["tls.crt"])
		}
	}
}
