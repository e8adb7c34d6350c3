package claim_test

import (
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/pkg/claim"
)

// TestUsageTypes: a class offers the types it is annotated with, of several classes the newest is taken.
func TestUsageTypes(t *testing.T) {
	class := func(name string, age time.Duration, annotations map[string]string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations,
			CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}}
	}
	const fast, slow = claim.UsageTypePrefix + "fast", claim.UsageTypePrefix + "slow"
	classes := []storagev1.StorageClass{
		class("plain", 0, nil),
		class("ssd", time.Hour, map[string]string{fast: "/storage/ssd"}),
		class("nvme", time.Minute, map[string]string{fast: "", slow: "false"}),
		class("rust", time.Hour, map[string]string{slow: "true", claim.UsageTypePrefix: "true"}),
		class("rest", time.Hour, map[string]string{claim.DefaultCopyClassAnnotation: "true"}),
		class("not", 0, map[string]string{claim.DefaultCopyClassAnnotation: "yes"}),
	}
	if got := claim.UsageTypes(classes); !slices.Equal(got, []string{"fast", "slow"}) {
		t.Errorf("types are %v", got)
	}
	for usage, want := range map[string]string{"fast": "nvme", "slow": "rust", "other": "", "": ""} {
		got := ""
		if c := claim.ForUsage(classes, usage); c != nil {
			got = c.Name
		}
		if got != want {
			t.Errorf("type %q is in class %q, not %q", usage, got, want)
		}
	}
	if c := claim.DefaultCopyClass(classes); c == nil || c.Name != "rest" {
		t.Errorf("the class for copies is %v", c)
	}
	if c := claim.DefaultCopyClass(classes[:4]); c != nil {
		t.Errorf("the class for copies is %v although none is marked", c)
	}
}
