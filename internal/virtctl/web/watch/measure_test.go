package watch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

// TestMeasures: what a driver says of the pools of its own node is read, and nothing else that may be in the answer.
func TestMeasures(t *testing.T) {
	text := `# HELP localdisk_pool_capacity_bytes What a pool has
localdisk_pool_capacity_bytes{node="node1",usage_type=""} 1.073741824e+09
localdisk_pool_capacity_bytes{node="node1",usage_type="fast"} 2e+09
localdisk_pool_capacity_bytes{node="node2",usage_type=""} 7
localdisk_pool_used_bytes{node="node1",usage_type=""} 65536
localdisk_pool_used_bytes{node="node1",usage_type="fast"} NaN
localdisk_pool_used_bytes{node="node1",usage_type="cold"} -5
localdisk_pool_used_bytes{node="node1",usage_type="hot"} 1e+99
go_goroutines 9
`
	want := map[string]view.Measure{"node1/": {Used: 65536, Capacity: 1 << 30}, "node1/fast": {Capacity: 2e9}}
	if diff := cmp.Diff(want, measures(text, "node1")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDrivers: only pods where the driver says what room it has are asked, whatever a tenant calls their own.
func TestDrivers(t *testing.T) {
	pod := func(namespace, name, app string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": app}}}
		p.Spec.NodeName, p.Status.Phase = "node1", corev1.PodRunning
		return p
	}
	starting := pod("localdisk", "starting", "localdisk")
	starting.Status.Phase = corev1.PodPending
	says := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "localdisk", Labels: map[string]string{"csi.storage.k8s.io/drivername": "localdisk.berth.dev"}}}
	other := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Labels: map[string]string{"csi.storage.k8s.io/drivername": "example.org"}}}
	got := drivers([]*storagev1.CSIStorageCapacity{says, other}, []*corev1.Pod{
		pod("localdisk", "driver", "localdisk"), pod("localdisk", "else", "web"), pod("team", "forged", "localdisk"), starting})
	if len(got) != 1 || got[0].Name != "driver" {
		t.Errorf("%v are asked", got)
	}
}
