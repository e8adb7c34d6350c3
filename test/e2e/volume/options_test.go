//go:build e2e

package volume

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestVolumeOptions: headers from a Secret reach the server, the worker has the priority that was asked for, and the disk has all
// of its blocks if that was.
func TestVolumeOptions(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: b.Namespace}, Value: 1000}
	b.NoError(b.Kube.Create(b.Context(), priority))
	t.Cleanup(func() {
		if err := b.Kube.Delete(context.Background(), priority); err != nil {
			t.Error(err)
		}
	})
	b.NoError(b.Kube.Create(b.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "header"}, StringData: map[string]string{"any": "X-Pass: open sesame"},
	}))
	url := b.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Pass") != "open sesame" || r.Header.Get("X-Plain") != "too" {
			http.Error(w, "closed", http.StatusForbidden)
			return
		}
		b.Web.ServeHTTP(w, r)
	}))
	release := b.Web.Hold()
	b.CreateVolume(fixture.Volume{Class: fixture.ClassDiskImmediate, Size: "64Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source.HTTP = &cdiv1.DataVolumeSourceHTTP{
			URL: url + "/disk.img", SecretExtraHeaders: []string{"header"}, ExtraHeaders: []string{"X-Plain: too"},
		}
		dv.Spec.Preallocation, dv.Spec.PriorityClassName = fixture.Ptr(true), priority.Name
	}})
	b.UntilPhase("disk", cdiv1.ImportInProgress)
	var worker corev1.Pod
	b.NoError(b.Kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: "importer-disk"}, &worker))
	if worker.Spec.PriorityClassName != priority.Name || worker.Spec.Priority == nil || *worker.Spec.Priority != priority.Value {
		t.Errorf("the worker's priority is %q", worker.Spec.PriorityClassName)
	}
	release()
	b.UntilPhase("disk", cdiv1.Succeeded)
	if got := b.ReadClaim("disk").Annotations["cdi.kubevirt.io/storage.preallocation"]; got != "true" {
		t.Errorf("the claim says preallocation %q", got)
	}
	size := b.BeginsWith("disk", fixture.DiskImage(24))
	out := strings.TrimSpace(b.Run(framework.Pod{Name: "blocks", User: fixture.GuestUser, Claims: []string{"disk"}, Script: "stat -c %b /disk/disk.img"}))
	if blocks, err := strconv.ParseInt(out, 10, 64); err != nil || blocks*512 < size {
		t.Errorf("a preallocated disk of %d bytes has %s blocks of 512", size, out)
	}
}
