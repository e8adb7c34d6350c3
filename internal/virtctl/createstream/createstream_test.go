package createstream

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/pkg/claim"
)

// TestCacheOfAUsageType: the cache is in a new claim of the class that offers the usage type, with room for all that it may become.
func TestCacheOfAUsageType(t *testing.T) {
	class := func(name, usage string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{claim.UsageTypePrefix + usage: "/ssd"}}}
	}
	classes := []storagev1.StorageClass{class("a", "slow"), class("b", "cache")}
	found, err := ForUsage(classes, "cache")
	if err != nil || found.Name != "b" {
		t.Fatalf("%v, %v", found, err)
	}
	o := Options{Name: "golden", Images: []string{"i"}, CacheSize: "10Gi", CacheClass: found}
	objects, err := Objects(o)
	if err != nil {
		t.Fatal(err)
	}
	var made *corev1.PersistentVolumeClaim
	var used []string
	for _, object := range objects {
		switch x := object.(type) {
		case *corev1.PersistentVolumeClaim:
			made = x
		case *appsv1.Deployment:
			for _, v := range x.Spec.Template.Spec.Volumes {
				if v.PersistentVolumeClaim != nil {
					used = append(used, v.PersistentVolumeClaim.ClaimName)
				}
			}
		}
	}
	if made == nil || *made.Spec.StorageClassName != "b" || len(used) != 1 || used[0] != made.Name {
		t.Fatalf("claim %+v, and the pod has %v", made, used)
	}
	const least = 10<<30 + 256<<20
	if room := made.Spec.Resources.Requests.Storage().Value(); claim.Ext4.Holds(room) < least {
		t.Errorf("a claim of %d bytes does not hold a cache of %d", room, int64(least))
	}
	o.CacheClaim = "kept"
	if _, err := Objects(o); err == nil {
		t.Error("two media for one cache")
	}
	for want, of := range map[string][]storagev1.StorageClass{"there are: cache, slow": classes, "annotate one": nil} {
		if _, err := ForUsage(of, "none"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
