//go:build peers && e2e

package takeover

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// dataVolume is one of 64 MiB, or of what the file system of a small disk leaves room for.
func dataVolume(name, class, source, annotations string) string {
	size := "64Mi"
	if strings.HasPrefix(class, "localdisk") {
		size = "256Mi"
	}
	return fmt.Sprintf(`---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: %s, annotations: {cdi.kubevirt.io/storage.deleteAfterCompletion: "false"%s}}
spec:
  source: {%s}
  storage: {storageClassName: %s, volumeMode: Filesystem, accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}
`, name, annotations, source, class, size)
}

func fromURL(url string) string { return fmt.Sprintf("http: {url: %q}", url) }

// populated returns a claim that CDI's populator fills, without a DataVolume.
func populated(name, url string) string {
	return fmt.Sprintf(`---
apiVersion: cdi.kubevirt.io/v1beta1
kind: VolumeImportSource
metadata: {name: %[1]s}
spec: {source: {http: {url: %[2]q}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec:
  storageClassName: immediate
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
  dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeImportSource, name: %[1]s}
`, name, url)
}

// annotated returns a claim of the oldest kind: CDI writes to the claim itself.
func annotated(name, url string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, annotations: {cdi.kubevirt.io/storage.import.endpoint: %q, cdi.kubevirt.io/storage.import.source: http}}
spec: {storageClassName: immediate, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`, name, url)
}

func cron(registry string) string {
	return fmt.Sprintf(`---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataImportCron
metadata: {name: golden, annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: "true"}}
spec:
  schedule: "* * * * *"
  managedDataSource: golden
  garbageCollect: Outdated
  importsToKeep: 2
  template:
    spec:
      source: {registry: {url: "docker://%s/golden:latest"}}
      storage: {storageClassName: immediate, volumeMode: Filesystem, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`, registry)
}

// spare is a volume that is deleted after the takeover.
const spare = "csi-spare"

// held is a claim at one time, and what is on its disk.
type held struct {
	uid    types.UID
	volume string
	disk   string
}

// done returns the volumes that CDI has filled before Berth comes, by claim.
func (s *site) done(names []string) map[string]held {
	s.T.Helper()
	out := map[string]held{}
	for _, name := range names {
		claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			s.T.Fatalf("read claim %s: %v", name, err)
		}
		out[name] = held{claim.UID, claim.Spec.VolumeName, s.Sum(name, "disk.img")}
	}
	return out
}

// begins returns the sum of the first bytes of a claim's disk: as many as its source has. The rest is zeroes.
func (s *site) begins(claim string) string {
	s.T.Helper()
	script := fmt.Sprintf("at=/dev/%[1]s; [ -e $at ] || at=/%[1]s/disk.img; head -c %[2]d $at | sha256sum", claim, diskSize)
	out := s.Run(framework.Pod{Name: "head-" + claim, Script: script, Claims: []string{claim}})
	got, _, _ := strings.Cut(out, " ")
	return got
}

// TestTakeoverFromCDI: CDI's own programs fill volumes in every way, Berth takes over in the middle of it, and goes again.
func TestTakeoverFromCDI(t *testing.T) {
	s := &site{Env: framework.New(t)}
	from := s.newSources()
	for i, name := range []string{"imported", "populated", "annotated", "old", "waiting", "slow", "sent", "fresh", "again",
		"csi", "csi-waiting", "slow-csi", "csi-sent", "device", "origin"} {
		from.disks[name] = disk(uint64(i + 1))
	}
	registry := s.newRegistry()
	s.push(registry+"/golden:latest", disk(100))
	s.installDriver()
	s.installCDI(registry)
	s.apply(profile)

	url := func(name string) string { return from.url + "/" + name }
	s.apply(dataVolume("imported", "immediate", fromURL(url("imported")), "") +
		dataVolume("old", "immediate", fromURL(url("old")), `, cdi.kubevirt.io/storage.usePopulator: "false"`) +
		dataVolume("blank", "immediate", "blank: {}", "") +
		dataVolume("waiting", "local", fromURL(url("waiting")), "") +
		dataVolume("sent", "immediate", "upload: {}", "") +
		dataVolume("csi", "localdisk-immediate", fromURL(url("csi")), "") +
		dataVolume("csi-waiting", "localdisk", fromURL(url("csi-waiting")), "") +
		dataVolume("csi-sent", "localdisk-immediate", "upload: {}", "") +
		populated("populated", url("populated")) + annotated("annotated", url("annotated")) + cron(registry))
	for _, name := range []string{"imported", "old", "blank", "csi"} {
		s.waitField("dv", name, ".status.phase", "Succeeded")
	}
	of := func(claim string) string { return ofClaim(s.Namespace, claim) }
	s.apply(dataVolume("cloned", "immediate", of("imported"), "") + dataVolume("csi-cloned", "localdisk-immediate", of("csi"), "") +
		dataVolume(spare, "localdisk-immediate", of("csi"), "") + dataVolume("clone-waiting", "localdisk", of("csi"), ""))
	for _, name := range []string{"cloned", "csi-cloned", spare} {
		s.waitField("dv", name, ".status.phase", "Succeeded")
	}
	s.waitField("pvc", "populated", ".status.phase", "Bound")
	s.waitField("pvc", "annotated", `.metadata.annotations.cdi\.kubevirt\.io/storage\.pod\.phase`, "Succeeded")
	s.waitField("dv", "waiting", ".status.phase", "PendingPopulation", "WaitForFirstConsumer")
	s.waitField("dv", "csi-waiting", ".status.phase", "PendingPopulation")
	s.waitField("dv", "clone-waiting", ".status.phase", "PendingPopulation")
	s.waitField("dv", "sent", ".status.phase", "UploadReady")
	s.waitField("dv", "csi-sent", ".status.phase", "UploadReady")
	s.waitField("datasource", "golden", `.status.conditions[?(@.type=="Ready")].status`, "True")
	golden := s.kubectl("", "get", "datasource", "golden", "-o", "jsonpath={.spec.source.pvc.name}")
	shared := &site{Env: framework.New(t)}
	s.fillClones(shared, from)
	names := []string{"imported", "old", "blank", "cloned", "populated", "annotated", golden, "csi", "csi-cloned", "device", "far", "restored"}
	before, origin := s.done(names), shared.done([]string{"origin"})
	if got := s.begins("imported"); got != sum(from.disks["imported"]) {
		t.Fatalf("CDI has imported something else: %s", got)
	}
	s.apply(dataVolume("slow", "immediate", fromURL(url("slow")), "") + dataVolume("slow-csi", "localdisk-immediate", fromURL(url("slow-csi")), ""))
	s.waitField("dv", "slow", ".status.phase", "ImportInProgress")
	s.waitField("dv", "slow-csi", ".status.phase", "ImportInProgress")
	s.refusesOfAnother(shared)
	letGo := s.beginClone(shared)
	claims := s.claims()

	s.verdicts(s.says("takeover", "check"), map[string]string{
		"Deployment/cdi-operator": "stopped", "DataVolume/imported": "taken", "DataVolume/old": "taken", "DataVolume/blank": "taken", "DataVolume/cloned": "taken",
		"PersistentVolumeClaim/populated": "taken", "PersistentVolumeClaim/annotated": "taken", "DataVolume/waiting": "taken", "DataVolume/sent": "taken",
		"DataVolume/slow": "finished", "DataSource/golden": "taken", "DataImportCron/golden": "taken", "DataVolume/" + golden: "taken",
		"DataVolume/csi": "taken", "DataVolume/csi-cloned": "taken", "DataVolume/csi-waiting": "taken", "DataVolume/clone-waiting": "taken", "DataVolume/csi-sent": "taken", "DataVolume/slow-csi": "finished",
		"DataVolume/device": "taken", "DataVolume/far": "taken", "DataVolume/restored": "taken", "DataVolume/restored-waiting": "taken", "DataVolume/slow-far": "finished", "DataVolume/origin": "taken",
	})
	asked := from.asked()
	manifest := s.manifest()
	seen := s.watchPods()
	said := make(chan error, 1)
	takeover := s.virtctl("takeover", "-f", manifest)
	var out bytes.Buffer
	takeover.Stdout, takeover.Stderr = &out, &out
	go func() { said <- takeover.Run() }()
	s.Stays("the takeover waits for what CDI is filling", 5*interval, func(context.Context) (bool, string) {
		return s.kubectl("", "-n", "cdi", "get", "deploy", "cdi-deployment", "-o", "jsonpath={.spec.replicas}") == "1", "CDI was stopped"
	})
	from.letGo()
	letGo()
	if err := <-said; err != nil {
		t.Fatalf("takeover: %v\n%s", err, out.String())
	}
	fmt.Fprintf(&s.transcript, "$ virtctl takeover -f berth-data.yaml\n%s", out.String())
	s.kubectl("", "-n", "berth", "rollout", "status", "deployment", "--timeout=5m")

	s.same(before, claims)
	for name, disk := range map[string]string{"slow": "slow", "slow-csi": "slow-csi", "slow-far": "origin"} {
		if got := s.begins(name); got != sum(from.disks[disk]) {
			t.Errorf("%s, which was under way, ended with other contents: %s", name, got)
		}
	}
	s.worksWithBerth(from, registry, golden)
	delete(claims, spare)
	opened := seen()
	for _, name := range append(names, "slow", "slow-csi", "slow-far") {
		if pods := opened[name]; len(pods) > 0 {
			t.Errorf("claim %s was opened by %v after the takeover", name, pods)
		}
		if now := from.asked()[name]; !strings.HasPrefix(name, "slow") && now != asked[name] {
			t.Errorf("%s was asked for %d times, and %d times after the takeover", name, asked[name], now-asked[name])
		}
	}
	s.same(before, claims)
	shared.holdsOnly(origin)
	s.back(before, claims, from)
	shared.holdsOnly(origin)
	t.Logf("the whole of it:\n%s", s.transcript.String())
}

// interval is short: it is for what does not happen.
const interval = 1e9

// verdicts checks the lines of a check.
func (s *site) verdicts(table string, want map[string]string) {
	s.T.Helper()
	for what, verdict := range want {
		found := false
		for line := range strings.Lines(table) {
			if f := strings.Fields(line); slices.Contains(f, what) {
				found = true
				if i := slices.Index(f, what); f[i+1] != verdict {
					s.T.Errorf("%s: %s, want %s", what, line, verdict)
				}
			}
		}
		if !found {
			s.T.Errorf("the check does not name %s", what)
		}
	}
	if s.T.Failed() {
		s.T.Fatalf("takeover check:\n%s", table)
	}
}

// manifest returns the data side of this tree, in a file.
func (s *site) manifest() string {
	s.T.Helper()
	path := filepath.Join(s.T.TempDir(), "berth-data.yaml")
	if err := os.WriteFile(path, []byte(s.kubectl("", "kustomize", "config/data")), 0o600); err != nil {
		s.T.Fatal(err)
	}
	return path
}

// claims returns those of the namespace, by name.
func (s *site) claims() map[string]types.UID {
	s.T.Helper()
	all, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	out := map[string]types.UID{}
	for _, c := range all.Items {
		if !strings.HasPrefix(c.Name, "prime-") && !strings.HasSuffix(c.Name, "-scratch") {
			out[c.Name] = c.UID
		}
	}
	return out
}

// same checks that no claim is gone or another, and that what was filled has the same bytes and is Succeeded.
func (s *site) same(before map[string]held, claims map[string]types.UID) {
	s.T.Helper()
	now := s.claims()
	for name, uid := range claims {
		if now[name] != uid {
			s.T.Errorf("claim %s was %s and is %q", name, uid, now[name])
		}
	}
	names := make([]string, 0, len(before))
	for name := range before {
		names = append(names, name)
	}
	for name, is := range s.done(names) {
		if is != before[name] {
			s.T.Errorf("claim %s was %v and is %v", name, before[name], is)
		}
	}
	for _, name := range []string{"imported", "old", "blank", "cloned", "slow", "csi", "csi-cloned", "slow-csi", "device", "far", "restored", "slow-far"} {
		s.waitField("dv", name, ".status.phase", "Succeeded")
	}
}

// watchPods notes which pods open which claims from now on; those by which the test itself reads disks do not count. A claim that is filled
// in another's stead counts as that one.
func (s *site) watchPods() func() map[string][]string {
	s.T.Helper()
	pods := s.Client.CoreV1().Pods(s.Namespace)
	now, err := pods.List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	watch, err := pods.Watch(s.Context(), metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(watch.Stop)
	return func() map[string][]string {
		stands := map[string]string{}
		for name, uid := range s.claims() {
			stands[name], stands["prime-"+string(uid)] = name, name
		}
		out := map[string][]string{}
		for {
			select {
			case e := <-watch.ResultChan():
				pod, is := e.Object.(*corev1.Pod)
				if !is {
					s.T.Fatalf("the watch of pods ended: %v", e)
				}
				if e.Type != apiwatch.Added || strings.HasPrefix(pod.Name, "sum-") || strings.HasPrefix(pod.Name, "head-") {
					continue
				}
				for _, v := range pod.Spec.Volumes {
					if v.PersistentVolumeClaim != nil {
						name := stands[v.PersistentVolumeClaim.ClaimName]
						out[name] = append(out[name], pod.Name)
					}
				}
			default:
				return out
			}
		}
	}
}
