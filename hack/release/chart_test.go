package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

// byName are objects by kind and name.
func byName(t *testing.T, stream string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for text := range strings.SplitSeq("\n"+stream, "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if len(o) == 0 {
			continue
		}
		key := fileOf(o)
		if all[key] != nil {
			t.Errorf("there are two %s", key)
		}
		all[key] = o
	}
	return all
}

// rendered returns the chart's objects as Helm renders them with values. The annotation that tells Helm to leave definitions
// alone is for Helm only: it is checked and taken off.
func rendered(t *testing.T, c *chart.Chart, set map[string]any) map[string]object {
	t.Helper()
	values, err := chartutil.ToRenderValues(c, set, chartutil.ReleaseOptions{Name: "berth", Namespace: "default"}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := engine.Render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	var stream strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if strings.HasSuffix(name, ".yaml") {
			stream.WriteString("\n---\n" + texts[name])
		}
	}
	all := byName(t, stream.String())
	for name, o := range all {
		notes, _ := field(o, "metadata", "annotations").(map[string]any)
		if (notes["helm.sh/resource-policy"] == "keep") != (o["kind"] == "CustomResourceDefinition") {
			t.Errorf("%s is kept by Helm or not, the wrong way round", name)
		}
		if delete(notes, "helm.sh/resource-policy"); len(notes) == 0 && notes != nil {
			delete(o["metadata"].(map[string]any), "annotations")
		}
	}
	return all
}

// made makes a release's manifests and loads its chart.
func made(t *testing.T) (*maker, *chart.Chart) {
	t.Helper()
	defer func(all []platform) { platforms = all }(platforms)
	platforms = nil
	m := testRelease(t)
	if err := m.manifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load(filepath.Join(m.dist, m.chartName()))
	if err != nil {
		t.Fatal(err)
	}
	return m, c
}

func read(t *testing.T, m *maker, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dist, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ofData are the kinds of ours that the data side has too: which workers read and write a disk, and backups as sources of disks.
var ofData = []string{"customresourcedefinition-diskaccesses-berth-dev.yaml", "customresourcedefinition-volumebackupsources-berth-dev.yaml"}

// Nothing in a manifest is an image that a registry does not have, and the data side alone knows nothing of machines.
func TestManifests(t *testing.T) {
	m, _ := made(t)
	release, err := readImages(m.dist)
	if err != nil {
		t.Fatal(err)
	}
	for file, machines := range map[string]bool{"berth.yaml": true, "berth-data.yaml": false} {
		text := read(t, m, file)
		if strings.Contains(text, ":dev") {
			t.Errorf("%s names an image of the source tree", file)
		}
		berth, launcher := strings.Count(text, release[0].at("berth.dev")), strings.Count(text, release[1].at("berth.dev"))
		if berth < 4 || (launcher == 1) != machines {
			t.Errorf("%s names the image %d times and the launcher's %d times", file, berth, launcher)
		}
		all := byName(t, text)
		for _, only := range []string{
			"customresourcedefinition-virtualmachines-kubevirt-io.yaml", "daemonset-berth-node.yaml", "clusterrole-berth-machine.yaml",
			"apiservice-v1-subresources-kubevirt-io.yaml", "validatingwebhookconfiguration-berth-machine.yaml",
		} {
			if (all[only] != nil) != machines {
				t.Errorf("%s has %s: %t", file, only, all[only] != nil)
			}
		}
		for name, o := range all {
			if group := field(o, "spec", "group"); o["kind"] == "CustomResourceDefinition" && group != "cdi.kubevirt.io" && !machines && !slices.Contains(ofData, name) {
				t.Errorf("%s has %s, a kind of %v", file, name, group)
			}
			if o["kind"] == "ClusterRole" && !machines && strings.Contains(name, "berth") && grants(o, "kubevirt.io") {
				t.Errorf("%s of %s grants something on machines", name, file)
			}
		}
		if all["customresourcedefinition-datavolumes-cdi-kubevirt-io.yaml"] == nil || all["deployment-berth-controller.yaml"] == nil {
			t.Errorf("%s lacks what every installation has: %v", file, slices.Sorted(maps.Keys(all)))
		}
	}
}

func grants(role object, group string) bool {
	rules, _ := role["rules"].([]any)
	return slices.ContainsFunc(rules, func(r any) bool {
		groups, _ := field(r, "apiGroups").([]any)
		return slices.Contains(groups, any(group))
	})
}

// The objects that Helm renders are those of the manifests.
func TestChartIsTheManifests(t *testing.T) {
	m, c := made(t)
	for file, set := range map[string]map[string]any{"berth.yaml": nil, "berth-data.yaml": {"sides": "data"}} {
		if diff := cmp.Diff(byName(t, read(t, m, file)), rendered(t, c, set)); diff != "" {
			t.Errorf("%s and the chart (-manifest +chart):\n%s", file, diff)
		}
	}
}

func TestChartIsSound(t *testing.T) {
	m, c := made(t)
	dir := t.TempDir()
	if err := chartutil.ExpandFile(dir, filepath.Join(m.dist, m.chartName())); err != nil {
		t.Fatal(err)
	}
	found := lint.All(filepath.Join(dir, "berth"), nil, "default", true)
	for _, said := range found.Messages {
		if said.Severity >= support.WarningSev {
			t.Errorf("helm lint: %s", said)
		}
	}
	if c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "v1.2.3" || c.Metadata.KubeVersion == "" {
		t.Errorf("the chart is %+v", c.Metadata)
	}
	for about, set := range map[string]map[string]any{
		"a side that is none":   {"sides": "machine"},
		"a value that is none":  {"replicas": 3},
		"no controller":         {"controller": map[string]any{"replicas": 0}},
		"a secret without name": {"image": map[string]any{"pullSecrets": []any{"login"}}},
	} {
		if _, err := chartutil.ToRenderValues(c, set, chartutil.ReleaseOptions{}, nil); err == nil {
			t.Errorf("%s is not refused", about)
		}
	}
}

// Each value arrives where it belongs, and only there.
func TestChartValues(t *testing.T) {
	_, c := made(t)
	default0 := rendered(t, c, nil)
	set := rendered(t, c, map[string]any{
		"image":     map[string]any{"registry": "registry.example.com/team", "pullPolicy": "Always", "pullSecrets": []any{map[string]any{"name": "login"}}},
		"emulation": true, "metricsForAnybody": true, "featureGates": []any{"HonorWaitForFirstConsumer", "Other"},
		"controller": map[string]any{"replicas": 3, "tolerations": []any{map[string]any{"key": "infra", "operator": "Exists"}}},
		"node":       map[string]any{"resources": map[string]any{"kvm": map[string]any{"limits": map[string]any{"memory": "1Gi"}}}, "tolerations": []any{}},
	})
	controller, node := set["deployment-berth-controller.yaml"], set["daemonset-berth-node.yaml"]
	container := func(o object, n int, path ...string) any {
		return field(field(o, "spec", "template", "spec", "containers").([]any)[n], path...)
	}
	for about, c := range map[string]struct{ got, want any }{
		"replicas":              {field(controller, "spec", "replicas"), 3.0},
		"others' replicas":      {field(set["deployment-berth-api.yaml"], "spec", "replicas"), field(default0["deployment-berth-api.yaml"], "spec", "replicas")},
		"arguments":             {container(controller, 0, "args"), []any{"--allow-emulation", "--feature-gates=HonorWaitForFirstConsumer,Other"}},
		"metrics":               {metricsOf(container(controller, 0, "env")), ""},
		"metrics by default":    {metricsOf(container(default0["daemonset-berth-node.yaml"], 0, "env")), "/etc/berth/metrics"},
		"tolerations":           {field(controller, "spec", "template", "spec", "tolerations"), []any{map[string]any{"key": "infra", "operator": "Exists"}}},
		"the node's":            {field(node, "spec", "template", "spec", "tolerations"), nil},
		"pull secrets":          {field(node, "spec", "template", "spec", "imagePullSecrets"), []any{map[string]any{"name": "login"}}},
		"pull policy":           {container(node, 1, "imagePullPolicy"), "Always"},
		"resources":             {container(node, 1, "resources", "limits", "memory"), "1Gi"},
		"the other container's": {container(node, 0, "resources"), container(default0["daemonset-berth-node.yaml"], 0, "resources")},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", about, diff)
		}
	}
	text, err := yaml.Marshal(slices.Collect(maps.Values(set)))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("berth.dev/berth@")) || bytes.Count(text, []byte("registry.example.com/team/berth@sha256:")) < 4 ||
		bytes.Count(text, []byte("registry.example.com/team/berth-launcher@sha256:")) != 1 {
		t.Error("an image is at another registry than the one that was named")
	}
	if left := rendered(t, c, map[string]any{"crds": false}); slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(name string) bool {
		return strings.HasPrefix(name, "customresourcedefinition")
	}) {
		t.Error("definitions come along though they were not wanted")
	}
}

// metricsOf returns where a container finds the certificate that it shows Prometheus; empty: metrics are served to all clients.
func metricsOf(env any) any {
	for _, e := range env.([]any) {
		if field(e, "name") == "BERTH_METRICS_TLS" {
			return field(e, "value")
		}
	}
	return nil
}

// Network policies come where they are wanted, for the parts that are there.
func TestChartNetworkPolicies(t *testing.T) {
	_, c := made(t)
	for sides, want := range map[string]int{"all": 4, "data": 3} {
		n := 0
		for name, o := range rendered(t, c, map[string]any{"sides": sides, "networkPolicies": true}) {
			if strings.HasPrefix(name, "networkpolicy-") && field(o, "metadata", "labels", "berth.dev/installed") == "true" {
				n++
			}
		}
		if n != want {
			t.Errorf("sides %s: %d policies, not %d", sides, n, want)
		}
	}
}

// The library comes where it is wanted: with the data side alone, its images do.
func TestChartLibrary(t *testing.T) {
	_, c := made(t)
	for sides, want := range map[string]bool{"all": true, "data": false} {
		have := rendered(t, c, map[string]any{"sides": sides, "library": true})
		_, images := have["dataimportcron-debian-image-cron.yaml"]
		_, types := have["virtualmachineclusterinstancetype-u1-medium.yaml"]
		if !images || types != want {
			t.Errorf("sides %s: images %t, instance types %t", sides, images, types)
		}
	}
	for name := range rendered(t, c, map[string]any{}) {
		if strings.HasPrefix(name, "dataimportcron-") {
			t.Errorf("%s is there although nobody wants it", name)
		}
	}
}
