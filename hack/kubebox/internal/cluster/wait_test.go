package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

func TestNodesReady(t *testing.T) {
	began := time.Date(2030, 1, 2, 3, 4, 5, 600, time.UTC)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	for what, test := range map[string]struct {
		status corev1.ConditionStatus
		heard  time.Duration
		want   bool
	}{
		"ready":                    {corev1.ConditionTrue, time.Second, true},
		"ready in the same second": {corev1.ConditionTrue, 0, true},
		"ready from before":        {corev1.ConditionTrue, -time.Minute, false},
		"not ready":                {corev1.ConditionFalse, time.Second, false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: test.status, LastHeartbeatTime: metav1.NewTime(began.Add(test.heard).Truncate(time.Second)),
		}}}}
		err := nodesReady(t.Context(), fake.NewClientset(node, account), []plan.Node{{Name: "node1", Index: 1}}, began)
		if (err == nil) != test.want {
			t.Errorf("%s: got %v, want ready %t", what, err, test.want)
		}
	}
	if err := nodesReady(t.Context(), fake.NewClientset(account), []plan.Node{{Name: "node1", Index: 1}}, began); err == nil {
		t.Error("a node that has not registered counts as Ready")
	}
}

func TestManifestIsComplete(t *testing.T) {
	out, err := renderManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: local\n", "name: immediate\n", "name: local-path\n", "name: local-static\n", "clusterIP: 10.96.0.10", `addresses: ["10.77.0.1"]`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the manifest lacks %q:\n%s", want, out)
		}
	}
}
