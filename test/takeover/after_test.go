//go:build peers && e2e

package takeover

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// worksWithBerth continues with what had not begun, and makes something new.
func (s *site) worksWithBerth(from *sources, registry, golden string) {
	s.T.Helper()
	s.apply(dataVolume("fresh", "immediate", fromURL(from.url+"/fresh"), ""))
	s.waitField("dv", "fresh", ".status.phase", "Succeeded")
	if got := s.begins("fresh"); got != sum(from.disks["fresh"]) {
		s.T.Errorf("Berth has imported something else: %s", got)
	}

	for name, disk := range map[string]string{"waiting": "waiting", "csi-waiting": "csi-waiting", "clone-waiting": "csi", "restored-waiting": "csi"} {
		if got := s.begins(name); got != sum(from.disks[disk]) { // the pod that reads it is its first consumer
			s.T.Errorf("%s, which waited for its consumer, has other contents: %s", name, got)
		}
		s.waitField("dv", name, ".status.phase", "Succeeded")
	}
	s.upload("sent", from)
	s.upload("csi-sent", from)

	// no program but CDI would remove its finalizers
	s.kubectl("", "delete", "dv", spare, "--timeout=2m")
	s.Wait("the claim of a volume that was deleted to go", patience, func(context.Context) (bool, string) {
		out, err := s.try("", "get", "pvc", spare, "--ignore-not-found", "-o", "yaml")
		return err == nil && out == "", out
	})

	if now := s.kubectl("", "get", "datasource", "golden", "-o", "jsonpath={.spec.source.pvc.name}"); now != golden {
		s.T.Errorf("DataSource golden named %s and names %s", golden, now)
	}
	s.push(registry+"/golden:latest", disk(101))
	newer := ""
	s.Wait("the cron to import the newer image", patience, func(context.Context) (bool, string) {
		out, err := s.try("", "get", "datasource", "golden", "-o", `jsonpath={.spec.source.pvc.name} {.status.conditions[?(@.type=="Ready")].status}`)
		name, ready, _ := strings.Cut(out, " ")
		newer = name
		return err == nil && name != golden && ready == "True", out
	})
	if got := s.begins(newer); got != sum(disk(101)) {
		s.T.Errorf("the cron has imported something else: %s", got)
	}
	if got := s.kubectl("", "get", "storageprofile", "localdisk-immediate", "-o", "jsonpath={.spec.cloneStrategy}"); got != "csi-clone" {
		s.T.Errorf("the profile of a class says %q", got)
	}
	if got := s.kubectl("", "get", "cdi", "cdi", "-o", "jsonpath={.spec.config.filesystemOverhead.global} {.spec.config.insecureRegistries[0]}"); got != "0.08 "+registry {
		s.T.Errorf("the settings of CDI are now %s", got)
	}
	if got := s.kubectl("", "get", "cdiconfig", "config", "-o", "jsonpath={.spec.filesystemOverhead.global} {.status.filesystemOverhead.global}"); !strings.Contains(got, "0.08") {
		s.T.Errorf("CDIConfig says %s", got)
	}
}

// upload sends a disk to a volume that waits for it.
func (s *site) upload(name string, from *sources, flags ...string) {
	s.T.Helper()
	s.waitField("dv", name, ".status.phase", "UploadReady")
	file := filepath.Join(s.T.TempDir(), "disk.img")
	if err := os.WriteFile(file, from.disks[name], 0o600); err != nil {
		s.T.Fatal(err)
	}
	s.says(append([]string{"image-upload", "dv", name, "--no-create", "--insecure", "--image-path=" + file}, flags...)...)
	s.waitField("dv", name, ".status.phase", "Succeeded")
	if got := s.begins(name); got != sum(from.disks[name]) {
		s.T.Errorf("%s has other contents than what was uploaded: %s", name, got)
	}
}

// back is the way back: Berth is taken off, CDI starts again and knows all that was filled.
func (s *site) back(before map[string]held, claims map[string]types.UID, from *sources) {
	s.T.Helper()
	s.says("uninstall", "--with-data=keep")
	seen := s.watchPods()
	s.says("takeover", "--back")
	s.kubectl("", "-n", "cdi", "rollout", "status", "deployment", "--timeout=5m")
	s.waitField("cdi", "cdi", ".status.phase", "Deployed")
	s.apply(dataVolume("again", "immediate", fromURL(from.url+"/again"), ""))
	s.waitField("dv", "again", ".status.phase", "Succeeded")
	if got := s.begins("again"); got != sum(from.disks["again"]) {
		s.T.Errorf("CDI has imported something else after the way back: %s", got)
	}
	from.disks["sent-again"] = disk(50)
	s.apply(dataVolume("sent-again", "localdisk-immediate", "upload: {}", ""))
	proxy := s.kubectl("", "-n", "cdi", "get", "service", "cdi-uploadproxy", "-o", "jsonpath={.spec.clusterIP}")
	s.upload("sent-again", from, "--uploadproxy-url=https://"+proxy)
	if hooks := s.kubectl("", "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name"); !strings.Contains(hooks, "cdi-api-datavolume-mutate") ||
		!strings.Contains(hooks, "cdi-api-populator-validate") || strings.Contains(hooks, "berth") {
		s.T.Errorf("the webhooks after the way back: %s", hooks)
	}
	s.same(before, claims)
	for _, name := range []string{"fresh", "waiting", "sent", "csi-waiting", "csi-sent"} {
		s.waitField("dv", name, ".status.phase", "Succeeded")
		if got := s.begins(name); got != sum(from.disks[name]) {
			s.T.Errorf("%s, which Berth filled, has other contents with CDI: %s", name, got)
		}
	}
	for claim, pods := range seen() {
		if _, known := claims[claim]; known {
			s.T.Errorf("claim %s was opened by %v after the way back", claim, pods)
		}
	}
}
