package main

import (
	_ "embed" // the parts of the chart that are written by hand
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The chart's parts that are the same for every release. Everything else is made from the manifests: they are the one place that says what
// Berth is made of.
var (
	//go:embed chart/values.yaml
	chartValues string
	//go:embed chart/values.schema.json
	chartSchema []byte
	//go:embed chart/_helpers.tpl
	chartHelpers []byte
	//go:embed chart/NOTES.txt
	chartNotes []byte
)

// chart packs the Helm chart: every object of the whole is a template, guarded where the data side alone does without it.
func (m *maker) chart(release []image, rendered map[string][]object) error {
	files, err := m.chartFiles(release, rendered)
	if err != nil {
		return err
	}
	archive, err := m.tar(files)
	if err != nil {
		return err
	}
	return m.write(m.chartName(), archive)
}

// chartName returns the chart's file as Helm names it.
func (m *maker) chartName() string { return "berth-" + strings.TrimPrefix(m.is.Version, "v") + ".tgz" }

func (m *maker) chartFiles(release []image, rendered map[string][]object) ([]packed, error) {
	about, err := yaml.Marshal(object{
		"apiVersion": "v2", "name": "berth", "type": "application", "version": strings.TrimPrefix(m.is.Version, "v"), "appVersion": m.is.Version,
		"description": "Disks for virtual machines on Kubernetes, and the machines", "home": "https://github.com/berth-vm/berth",
		"kubeVersion": ">=1.30.0-0", "sources": []string{"https://github.com/berth-vm/berth"},
	})
	if err != nil {
		return nil, fmt.Errorf("write Chart.yaml: %w", err)
	}
	values, err := fillValues(rendered[whole])
	if err != nil {
		return nil, err
	}
	files := []packed{
		{"berth/Chart.yaml", about, 0o644}, {"berth/values.yaml", values, 0o644}, {"berth/values.schema.json", chartSchema, 0o644},
		{"berth/templates/_helpers.tpl", chartHelpers, 0o644}, {"berth/templates/NOTES.txt", chartNotes, 0o644},
	}
	inData := map[string]bool{}
	for _, o := range rendered[data] {
		inData[fileOf(o)] = true
	}
	for _, o := range rendered[whole] {
		t := &templater{release: release}
		template, err := t.template(o, inData[fileOf(o)])
		if err != nil {
			return nil, err
		}
		files = append(files, packed{"berth/templates/" + fileOf(o), template, 0o644})
	}
	policies, err := m.optional("networkPolicies", "network/policies.yaml")
	if err != nil {
		return nil, err
	}
	library, err := m.optional("library", "library/namespace.yaml", "library/view.yaml", "library/images.yaml", "library/instancetypes.yaml", "library/preferences.yaml")
	return slices.Concat(files, policies, library), err
}

// optional returns the templates of files below config that are installed only if a value of the chart asks for them.
func (m *maker) optional(value string, names ...string) ([]packed, error) {
	var files []packed
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(m.root, "config", filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		for one := range strings.SplitSeq(string(text), "\n---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(one), &o); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			if o["kind"] == nil { // a comment before the first
				continue
			}
			group := strings.HasPrefix(fmt.Sprint(o["apiVersion"]), "instancetype.kubevirt.io/")
			template, err := (&templater{optional: value}).template(o, !group && field(o, "metadata", "namespace") != "berth-node")
			if err != nil {
				return nil, err
			}
			files = append(files, packed{"berth/templates/" + fileOf(o), template, 0o644})
		}
	}
	return files, nil
}

var odd = regexp.MustCompile(`[^a-z0-9]+`)

// fileOf returns the template's file name of an object; no two objects of a manifest share one.
func fileOf(o object) string {
	return odd.ReplaceAllString(strings.ToLower(fmt.Sprint(o["kind"], "-", field(o, "metadata", "name"))), "-") + ".yaml"
}

// templater turns one object into a template. What Helm is to fill in is marked in the object and put in its place in the text.
type templater struct {
	release []image
	marks   []string // what the nth mark stands for
	// optional is the value of the chart that says whether the object is part of it; empty: it is.
	optional string
}

// value marks a value.
func (t *templater) value(expression string) string {
	t.marks = append(t.marks, "{{ "+expression+" }}")
	return fmt.Sprintf("HELM-%04d-", len(t.marks)-1)
}

// block marks lines that take the place of a key or of an item of a list. Keys are written in order: this one comes last.
func (t *templater) block(lines ...string) string {
	t.marks = append(t.marks, strings.Join(lines, "\n"))
	return fmt.Sprintf("zHELM-%04d-", len(t.marks)-1)
}

var (
	blocks  = regexp.MustCompile(`(?m)^( *)(?:- )?zHELM-(\d{4})-(?:: "")?\n`)
	inlined = regexp.MustCompile(`HELM-(\d{4})-`)
)

// text returns an object with its marks filled in. What looks like a template in the object itself is none.
func (t *templater) text(o object) (string, error) {
	plain, err := yaml.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", fileOf(o), err)
	}
	mark := func(number string) string {
		var n int
		_, _ = fmt.Sscanf(number, "%d", &n)
		return t.marks[n]
	}
	out := strings.ReplaceAll(string(plain), "{{", `{{ "{{" }}`)
	out = blocks.ReplaceAllStringFunc(out, func(line string) string {
		parts := blocks.FindStringSubmatch(line)
		return parts[1] + strings.ReplaceAll(mark(parts[2]), "\n", "\n"+parts[1]) + "\n"
	})
	out = inlined.ReplaceAllStringFunc(out, func(s string) string { return mark(inlined.FindStringSubmatch(s)[1]) })
	return out, nil
}

// template returns an object as a template.
func (t *templater) template(o object, inData bool) ([]byte, error) {
	o, err := copied(o)
	if err != nil {
		return nil, err
	}
	guard := ""
	if !inData {
		guard = `eq .Values.sides "all"`
	}
	if o["kind"] == "CustomResourceDefinition" {
		guard = strings.TrimSuffix("and .Values.crds ("+guard+")", " ()")
		keep(o)
	}
	if t.optional != "" {
		guard = strings.TrimSuffix("and .Values."+t.optional+" ("+guard+")", " ()")
	}
	t.images(o)
	if pod, works := field(o, "spec", "template", "spec").(map[string]any); works && pod["containers"] != nil {
		t.workload(o, pod)
	}
	out, err := t.text(o)
	if err != nil {
		return nil, err
	}
	if guard != "" {
		out = "{{- if " + guard + " }}\n" + out + "{{- end }}\n"
	}
	return []byte(out), nil
}

// keep tells Helm to leave a definition alone when it takes the rest away: with it would go every object of the kind.
func keep(o object) {
	about := o["metadata"].(map[string]any)
	if about["annotations"] == nil {
		about["annotations"] = map[string]any{}
	}
	about["annotations"].(map[string]any)["helm.sh/resource-policy"] = "keep"
}

// images marks the registry of every image.
func (t *templater) images(o object) {
	each(o, func(s string) string {
		for _, i := range t.release {
			if s == i.at(registryOf) {
				return t.value(".Values.image.registry") + strings.TrimPrefix(s, registryOf)
			}
		}
		return s
	})
}

// workload marks what people set of a Deployment or DaemonSet.
func (t *templater) workload(o object, pod map[string]any) {
	part := ".Values." + partOf(o)
	spec := o["spec"].(map[string]any)
	if spec["replicas"] != nil {
		spec["replicas"] = t.value(part + ".replicas")
	}
	pod[t.block("{{- with .Values.image.pullSecrets }}", "imagePullSecrets: {{ toJson . }}", "{{- end }}")] = ""
	delete(pod, "tolerations")
	pod[t.block("{{- with "+part+".tolerations }}", "tolerations: {{ toJson . }}", "{{- end }}")] = ""
	containers := pod["containers"].([]any)
	for _, c := range containers {
		c := c.(map[string]any)
		resources := part + ".resources"
		if len(containers) > 1 {
			resources += "." + c["name"].(string)
		}
		c["resources"] = t.value("toJson " + resources)
		c["imagePullPolicy"] = t.value(".Values.image.pullPolicy")
		if c["name"] == "controller" {
			t.controller(c)
		}
		t.metrics(c)
	}
}

// controller marks the controller's arguments, and its launcher's image, which the data side alone has no use for.
func (t *templater) controller(c map[string]any) {
	c[t.block(`{{- $args := include "berth.args" . }}`, `{{- if ne $args "[]" }}`, "args: {{ $args }}", "{{- end }}")] = ""
	env := c["env"].([]any)
	at := slices.IndexFunc(env, func(e any) bool { return field(e, "name") == "BERTH_LAUNCHER_IMAGE" })
	launcher := fmt.Sprint(field(env[at], "value"))
	env[at] = t.block(`{{- if eq .Values.sides "all" }}`, "- name: BERTH_LAUNCHER_IMAGE", "  value: "+launcher, "{{- end }}")
}

// metrics marks who may read a program's metrics.
func (t *templater) metrics(c map[string]any) {
	env, _ := c["env"].([]any)
	for _, e := range env {
		if field(e, "name") == "BERTH_METRICS_TLS" {
			e.(map[string]any)["value"] = t.value(fmt.Sprintf(`ternary "" %q .Values.metricsForAnybody | quote`, field(e, "value")))
		}
	}
}

// partOf returns what values call a workload.
func partOf(o object) string {
	return fmt.Sprint(field(o, "metadata", "labels", "app.kubernetes.io/component"))
}

func copied(o object) (object, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", fileOf(o), err)
	}
	var c object
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("copy %s: %w", fileOf(o), err)
	}
	return c, nil
}

// fillValues puts what the manifests say into the chart's values, where these leave room for it.
func fillValues(all []object) ([]byte, error) {
	out := chartValues
	put := func(name string, v any) error {
		if v == nil {
			v = []any{}
		}
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if !strings.Contains(out, "$"+name+"$") {
			return fmt.Errorf("the chart's values have no place for %s", name)
		}
		out = strings.ReplaceAll(out, "$"+name+"$", string(text))
		return nil
	}
	out = strings.ReplaceAll(out, "$registry$", registryOf)
	for _, o := range all {
		pod, works := field(o, "spec", "template", "spec").(map[string]any)
		if !works {
			continue
		}
		part := partOf(o)
		if replicas := field(o, "spec", "replicas"); replicas != nil {
			if err := put(part+".replicas", replicas); err != nil {
				return nil, err
			}
		}
		if err := put(part+".tolerations", pod["tolerations"]); err != nil {
			return nil, err
		}
		for _, c := range pod["containers"].([]any) {
			if err := put(part+".resources."+fmt.Sprint(field(c, "name")), field(c, "resources")); err != nil {
				return nil, err
			}
		}
	}
	if left := regexp.MustCompile(`\$[a-z.]+\$`).FindString(out); left != "" {
		return nil, fmt.Errorf("nothing in the manifests is the chart's value %s", left)
	}
	return []byte(out), nil
}
