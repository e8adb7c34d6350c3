package fill

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestRoomier(t *testing.T) {
	quota := func(hard, used string) *corev1.ResourceQuota {
		list := func(q string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse(q)}
		}
		return &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: list(hard), Used: list(used)}}
	}
	for name, row := range map[string]struct {
		old, now *corev1.ResourceQuota
		want     bool
	}{
		"raised":      {quota("1Gi", "1Gi"), quota("2Gi", "1Gi"), true},
		"freed":       {quota("1Gi", "1Gi"), quota("1Gi", "512Mi"), true},
		"filled up":   {quota("1Gi", "512Mi"), quota("1Gi", "1Gi"), false},
		"not changed": {quota("1Gi", "1Gi"), quota("1Gi", "1Gi"), false},
	} {
		if got := Roomier().Update(event.UpdateEvent{ObjectOld: row.old, ObjectNew: row.now}); got != row.want {
			t.Errorf("%s: %t, want %t", name, got, row.want)
		}
	}
}
