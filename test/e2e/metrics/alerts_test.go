//go:build e2e

package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestAlert: a real Prometheus scrapes the controllers with the rules of config/monitoring. The alert about a volume that is tried
// again and again fires while its source is missing, names the volume, and clears when the source is there and the volume is
// filled. Of the rules only the times and the number of tries are made small, so that the test is short.
func TestAlert(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	prometheus := prometheus(b)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", URL: b.Web.URL + "/missing.img"})
	firing := func(ctx context.Context) (bool, string) {
		text, err := fixture.Fetch(ctx, prometheus+"/api/v1/alerts")
		var said struct {
			Data struct {
				Alerts []struct {
					State               string
					Labels, Annotations map[string]string
				}
			}
		}
		if err != nil || json.Unmarshal([]byte(text), &said) != nil {
			return false, fmt.Sprint(text, err)
		}
		for _, a := range said.Data.Alerts {
			if a.Labels["alertname"] == "BerthVolumeRetries" && a.Labels["namespace"] == b.Namespace && a.State == "firing" {
				return strings.Contains(a.Annotations["runbook"], "kubectl -n "+b.Namespace+" describe dv disk"), fmt.Sprint(a)
			}
		}
		return false, text
	}
	waitingMachine(b)
	b.Wait("the alert to fire", fixture.Patience, firing)
	for _, metric := range []string{
		"berth_machines_oldest_waiting_seconds", "berth_datavolumes", "berth_datavolume_retries", "berth_datavolumes_oldest_waiting_seconds",
		"berth_transfers_total", "berth_transfer_bytes_total", "berth_transfer_duration_seconds_bucket", "kubevirt_cdi_cr_ready",
		"kubevirt_cdi_datavolume_pending", "kubevirt_cdi_storageprofile_info", `workqueue_depth{name="machine"}`,
		`workqueue_depth{name="instance"}`, `workqueue_depth{name="datavolume"}`, "berth_upload_places", "berth_uploads_active", "berth_uploads_waiting",
		"berth_upload_bytes_total", "localdisk_pool_free_bytes", "localdisk_pool_volumes",
	} {
		b.Wait("the cluster to serve "+metric, fixture.Patience, func(ctx context.Context) (bool, string) {
			text, err := fixture.Fetch(ctx, prometheus+"/api/v1/query?query="+url.QueryEscape(metric))
			return err == nil && strings.Contains(text, `"metric":`), fmt.Sprint(text, err)
		})
	}
	dashboard(b, prometheus)
	b.Web.Put("/missing.img", fixture.DiskImage(8))
	b.UntilPhase("disk", cdiv1.Succeeded)
	b.Wait("the alert to clear", fixture.Patience, func(ctx context.Context) (bool, string) {
		fires, text := firing(ctx)
		return !fires && strings.Contains(text, `"status":"success"`), text
	})
}

// waitingMachine makes a machine that waits for a disk that does not exist: a queue has metrics only after it was used.
func waitingMachine(b *fixture.Volumes) {
	b.T.Helper()
	vm := &unstructured.Unstructured{}
	err := yaml.Unmarshal([]byte(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: waits}, spec: {runStrategy: Always, template: {spec: {
		domain: {memory: {guest: 32Mi}, devices: {}}, volumes: [{name: disk, dataVolume: {name: nobodys}}]}}}}`), &vm.Object)
	vm.SetNamespace(b.Namespace)
	if err = errors.Join(err, b.Kube.Create(b.Context(), vm)); err != nil {
		b.T.Fatal(err)
	}
}

// emptyPanels are expressions of panels that have nothing to show while nothing of the kind is in the cluster.
var emptyPanels = map[string]bool{
	`berth_datavolumes{phase="UploadReady"}`: true, "kubevirt_cdi_import_progress_total": true, "kubevirt_cdi_clone_progress_total": true,
	"kubevirt_cdi_dataimportcron_outdated": true,
}

// dashboard asks Prometheus what every panel of the dashboard asks: each is understood, and has something to show.
func dashboard(b *fixture.Volumes, prometheus string) {
	b.T.Helper()
	text, err := os.ReadFile("../../../config/monitoring/dashboard.json")
	if err != nil {
		b.T.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		b.T.Fatal(err)
	}
	asked := 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			asked++
			b.Wait("panel "+p.Title+" to have data", fixture.Patience, func(ctx context.Context) (bool, string) { // a rate needs two scrapes
				said, err := fixture.Fetch(ctx, prometheus+"/api/v1/query?query="+url.QueryEscape(target.Expr))
				understood := err == nil && strings.Contains(said, `"status":"success"`)
				return understood && (emptyPanels[target.Expr] || strings.Contains(said, `"metric":`)), fmt.Sprint(said, err)
			})
		}
	}
	if asked < 15 {
		b.T.Errorf("the dashboard asks %d times: is it still read?", asked)
	}
}

// prometheus is the address of one that scrapes every program that serves metrics, on loopback.
func prometheus(b *fixture.Volumes) string {
	b.T.Helper()
	r, dir, jobs := fixture.NewMetricsReader(b.Env), b.T.TempDir(), []string(nil)
	for namespace, selector := range map[string]string{"berth": "app.kubernetes.io/component in (controller, uploadproxy)", "localdisk": "app.kubernetes.io/name=localdisk"} {
		var targets []string
		pods, err := b.Client.CoreV1().Pods(namespace).List(b.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(pods.Items) < 2 {
			b.T.Fatalf("find %s: %d, %v", selector, len(pods.Items), err)
		}
		for _, p := range pods.Items {
			targets = append(targets, fmt.Sprintf("%q", net.JoinHostPort(p.Status.PodIP, "8080")))
		}
		access := fmt.Sprintf("scheme: https, authorization: {credentials_file: token}, tls_config: {ca_file: ca.crt, server_name: %s}, ", fixture.MetricsServerName(namespace))
		if namespace == "localdisk" {
			access = "" // it asks nobody who they are
		}
		jobs = append(jobs, fmt.Sprintf("{job_name: %s, %sstatic_configs: [{targets: [%s]}]}", namespace, access, strings.Join(targets, ", ")))
	}
	rules, err := os.ReadFile("../../../config/monitoring/rules.yaml")
	if err != nil {
		b.T.Fatal(err)
	}
	quick := strings.NewReplacer("for: 5m", "for: 2s", "berth_datavolume_retries > 3", "berth_datavolume_retries > 0").Replace(string(rules))
	config := fmt.Sprintf("global: {scrape_interval: 2s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\nscrape_configs: [%s]\n", strings.Join(jobs, ", "))
	for name, text := range map[string]string{"rules.yaml": quick, "prometheus.yml": config, "token": r.Token, "ca.crt": r.Authority} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			b.T.Fatal(err)
		}
	}
	at := fmt.Sprintf("127.0.0.1:%d", fixture.FreePort(b.T))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at, "--log.level=warn")
	cmd.Stderr = b.T.Output()
	if err := cmd.Start(); err != nil {
		cancel()
		b.T.Fatalf("start prometheus: %v", err)
	}
	b.T.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was ended
	})
	return "http://" + at
}
