//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// TestAlert: a real Prometheus scrapes the controllers with the rules of config/monitoring. The alert about a volume that is tried again
// and again fires while its source is missing, names the volume, and clears when the source is there and the volume is filled. Of the rules
// only the times and the number of tries are made small, so that nobody has to wait for them.
func TestAlert(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	prometheus := b.prometheus()
	b.volume(volume{class: classImmediate, storage: "40Mi", url: b.web.url + "/missing.img"})
	firing := func(ctx context.Context) (bool, string) {
		text, err := fetch(ctx, prometheus+"/api/v1/alerts")
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
	b.Wait("the alert to fire", patience, firing)
	for _, metric := range []string{
		"berth_machines_oldest_waiting_seconds", "berth_datavolumes", "berth_datavolume_retries", "berth_datavolumes_oldest_waiting_seconds",
		"berth_transfers_total", "berth_transfer_bytes_total", "berth_transfer_duration_seconds_bucket", "kubevirt_cdi_cr_ready",
		"kubevirt_cdi_datavolume_pending", "kubevirt_cdi_storageprofile_info", `workqueue_depth{name="machine"}`,
		`workqueue_depth{name="instance"}`, `workqueue_depth{name="datavolume"}`,
	} {
		text, err := fetch(b.Context(), prometheus+"/api/v1/query?query="+url.QueryEscape(metric))
		if err != nil || !strings.Contains(text, `"metric":`) {
			t.Errorf("the cluster does not serve %s: %s %v", metric, text, err)
		}
	}
	b.web.put("/missing.img", image(8))
	b.untilPhase("disk", cdiv1.Succeeded)
	b.Wait("the alert to clear", patience, func(ctx context.Context) (bool, string) {
		fires, text := firing(ctx)
		return !fires && strings.Contains(text, `"status":"success"`), text
	})
}

// prometheus is the address of one that scrapes every controller, on loopback.
func (b *bed) prometheus() string {
	b.T.Helper()
	pods, err := b.Client.CoreV1().Pods("berth").List(b.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil || len(pods.Items) == 0 {
		b.T.Fatalf("find the controllers: %d, %v", len(pods.Items), err)
	}
	var targets []string
	for _, p := range pods.Items {
		targets = append(targets, fmt.Sprintf("%q", net.JoinHostPort(p.Status.PodIP, "8080")))
	}
	rules, err := os.ReadFile("../../config/monitoring/rules.yaml")
	if err != nil {
		b.T.Fatal(err)
	}
	quick := strings.NewReplacer("for: 5m", "for: 2s", "berth_datavolume_retries > 3", "berth_datavolume_retries > 0").Replace(string(rules))
	dir := b.T.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 2s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n"+
		"scrape_configs: [{job_name: berth, static_configs: [{targets: [%s]}]}]\n", strings.Join(targets, ", "))
	for name, text := range map[string]string{"rules.yaml": quick, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			b.T.Fatal(err)
		}
	}
	at := fmt.Sprintf("127.0.0.1:%d", freePort(b.T))
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
