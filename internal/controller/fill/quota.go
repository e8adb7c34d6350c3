package fill

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Roomier holds when a quota lets in what it refused before, because it was raised or something it counted is gone. That it fills up
// is no reason to look at every volume of the namespace again.
func Roomier() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, now := e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota)
			if !equality.Semantic.DeepEqual(old.Status.Hard, now.Status.Hard) {
				return true
			}
			for name, used := range now.Status.Used {
				before := old.Status.Used[name]
				if used.Cmp(before) < 0 {
					return true
				}
			}
			return false
		},
	}
}
