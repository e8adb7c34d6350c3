//go:build e2e

package upload

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestUploadGoesOn pulls the cable at several offsets of one upload to a device, deletes the worker in the middle and restarts the
// proxy in the middle: the upload continues where it was, with fresh tokens, and little is sent twice.
func TestUploadGoesOn(t *testing.T) {
	t.Parallel()
	d := fixture.NewUploads(fixture.NewVolumes(t))
	disk := fixture.DiskImage(48)[:48*fixture.MiB-1000]
	for i := range disk { // no zeroes to leave out: what passes the cable is what is sent
		if disk[i] == 0 {
			disk[i] = byte(i%255) + 1
		}
	}
	file := d.WriteFile("disk.img", disk)
	awaitDevice(d, "up", "64Mi")
	const each = 9 * fixture.MiB
	c := newCable(t, d.URL, each,
		func() {}, // nothing but the cable
		func() { d.Delete("cdi-upload-up") },
		func() { restartProxy(d) },
	)
	ca, err := os.ReadFile(d.CA)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	tokens := 0
	err = client.Send(d.Context(), file, client.Options{
		URL: c.url, CA: ca, Retries: 40, Pause: func(int) time.Duration { return time.Second },
		Token: func(context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			tokens++
			if tokens == 1 {
				return "bm90LmEgdG9rZW4", nil // refused: the client asks for another
			}
			return d.RequestToken("up"), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.UntilPhase("up", cdiv1.Succeeded)
	d.HoldsRaw("up", disk)
	leftNothing(d, "up")
	// Each break may lose what was under way; the worker's death what was not noted yet, which is two seconds' worth.
	if passed := c.passed; passed > int64(len(disk))+5*each {
		t.Errorf("%d bytes were sent for %d", passed, len(disk))
	}
	if tokens < 2 {
		t.Errorf("%d tokens were asked for", tokens)
	}
	if n := d.ReadVolume("up").Status.RestartCount; n > 1 {
		t.Errorf("the worker was restarted %d times", n)
	}
}

// restartProxy replaces every proxy by another, one after the other so that other tests continue, and returns when those are gone
// that were there: an upload that one of them carried is broken off by then.
func restartProxy(d *fixture.Uploads) {
	d.T.Helper()
	const selector = "app.kubernetes.io/component=uploadproxy"
	old := map[types.UID]bool{}
	pods := d.Client.CoreV1().Pods("berth")
	list, err := pods.List(d.Context(), metav1.ListOptions{LabelSelector: selector})
	if err == nil {
		patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"berth.dev/restarted":%q}}}}}`, d.Namespace)
		_, err = d.Client.AppsV1().Deployments("berth").Patch(d.Context(), "cdi-uploadproxy", types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{})
	}
	if err != nil {
		d.T.Errorf("restart the proxy: %v", err)
		return
	}
	for _, p := range list.Items {
		old[p.UID] = true
	}
	d.Wait("the proxies to be replaced", fixture.Patience, func(ctx context.Context) (bool, string) {
		now, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err.Error()
		}
		for _, p := range now.Items {
			if old[p.UID] {
				return false, p.Name + " is still there"
			}
		}
		return true, ""
	})
}

// TestUploadSparse sends a file that is mostly a hole: only its data passes the network, and all of it arrives.
func TestUploadSparse(t *testing.T) {
	t.Parallel()
	d := fixture.NewUploads(fixture.NewVolumes(t))
	disk := make([]byte, 100*fixture.MiB)
	copy(disk[60*fixture.MiB:], fixture.DiskImage(4))
	file := d.WriteFile("disk.img", nil)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(disk[60*fixture.MiB:64*fixture.MiB], 60*fixture.MiB)
	}
	if err == nil {
		err = f.Truncate(int64(len(disk)))
	}
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	d.CreateUpload("up", "128Mi")
	c := newCable(t, d.URL, 64*fixture.MiB)
	ca, err := os.ReadFile(d.CA)
	if err != nil {
		t.Fatal(err)
	}
	err = client.Send(d.Context(), file, client.Options{URL: c.url, CA: ca, Retries: 3,
		Token: func(context.Context) (string, error) { return d.RequestToken("up"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	d.UntilPhase("up", cdiv1.Succeeded)
	d.HoldsRaw("up", disk)
	if c.passed > 8*fixture.MiB {
		t.Errorf("%d bytes were sent for %d of data", c.passed, 4*fixture.MiB)
	}
}
