package machine

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// TestRequests holds what goes over the wire to what kubevirt.io's clients send: another server than ours reads it too.
func TestRequests(t *testing.T) {
	seconds := int64(3)
	disk := kubevirt.AddVolumeOptions{
		Name: "data", Disk: &kubevirt.Disk{Name: "data", DiskDevice: kubevirt.DiskDevice{LUN: &kubevirt.LunTarget{Bus: "scsi"}}},
		VolumeSource: &kubevirt.HotplugVolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "data", Hotpluggable: true}},
	}
	const machines = "/apis/subresources.kubevirt.io/v1/namespaces/team/virtualmachines/web/"
	const instances = "/apis/subresources.kubevirt.io/v1/namespaces/team/virtualmachineinstances/web/"
	for name, c := range map[string]struct {
		ask        func(context.Context, *kube.Client) error
		path, body string
	}{
		"start": {func(ctx context.Context, c *kube.Client) error {
			return Start(ctx, c, "web", Change{DryRun: []string{"All"}})
		},
			machines + "start", `{"dryRun":["All"]}`},
		"stop": {func(ctx context.Context, c *kube.Client) error {
			return Stop(ctx, c, "web", Change{GracePeriod: &seconds})
		},
			machines + "stop", `{"gracePeriod":3}`},
		"restart": {func(ctx context.Context, c *kube.Client) error {
			return Restart(ctx, c, "web", Change{GracePeriod: &seconds})
		},
			machines + "restart", `{"gracePeriodSeconds":3}`},
		"add": {func(ctx context.Context, c *kube.Client) error { return AddVolume(ctx, c, "web", disk, false) },
			instances + "addvolume",
			`{"name":"data","disk":{"name":"data","lun":{"bus":"scsi"}},"volumeSource":{"dataVolume":{"name":"data","hotpluggable":true}}}`},
		"keep": {func(ctx context.Context, c *kube.Client) error {
			return Keep(ctx, c, "web", kubevirt.KeepOptions{Name: "root", ClaimName: "mine"})
		}, instances + "keep", `{"name":"root","claimName":"mine"}`},
		"migrate": {func(ctx context.Context, c *kube.Client) error {
			return Migrate(ctx, c, "web", kubevirt.MigrateOptions{AddedNodeSelector: map[string]string{"zone": "a"}})
		}, machines + "migrate", `{"addedNodeSelector":{"zone":"a"}}`},
		"remove for good": {func(ctx context.Context, c *kube.Client) error {
			return RemoveVolume(ctx, c, "web", kubevirt.RemoveVolumeOptions{Name: "data"}, true)
		}, machines + "removevolume", `{"name":"data"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var path, body string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body) // a short one fails the test
				path, body = r.Method+" "+r.URL.Path, string(text)
				w.WriteHeader(http.StatusAccepted)
			}))
			defer s.Close()
			client, err := kube.New(&rest.Config{Host: s.URL}, "team")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.ask(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			if path != "PUT "+c.path || body != c.body {
				t.Errorf("sent %s %s\nwant PUT %s %s", path, body, c.path, c.body)
			}
		})
	}
}
