package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/images"
)

// object is one of a manifest.
type object = map[string]any

// The manifests of a release, and what of config each is rendered from.
const (
	whole = "berth"
	data  = "berth-data"
)

var sources = map[string]string{whole: "default", data: "data"}

// registryOf is the registry in the manifests of the source tree, which a release replaces.
var registryOf, _, _ = strings.Cut(images.Berth, "/")

// render has kustomize render a folder of config.
func render(root, folder string) ([]object, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // namespaces and definitions first, webhooks last
	rendered, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "config", folder))
	if err != nil {
		return nil, fmt.Errorf("render config/%s: %w", folder, err)
	}
	var all []object
	for _, r := range rendered.Resources() {
		o, err := r.Map()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", r.CurId(), err)
		}
		all = append(all, o)
	}
	return all, nil
}

// each calls change for every string in a value and puts what it returns in its place.
func each(v any, change func(string) string) any {
	switch v := v.(type) {
	case string:
		return change(v)
	case map[string]any:
		for k := range v {
			v[k] = each(v[k], change)
		}
	case []any:
		for i := range v {
			v[i] = each(v[i], change)
		}
	}
	return v
}

// pinned replaces the images of the source tree by those of the release at a registry, and says which version workloads are of.
func pinned(all []object, release []image, registry string) ([]object, error) {
	with := map[string]string{}
	for _, name := range []string{images.Berth, images.Launcher} {
		i, err := named(release, name)
		if err != nil {
			return nil, err
		}
		with[name] = i.at(registry)
	}
	for _, o := range all {
		each(o, func(s string) string {
			if pin, ok := with[s]; ok {
				return pin
			}
			return s
		})
		if _, works := field(o, "spec", "template").(map[string]any); works {
			field(o, "metadata", "labels").(map[string]any)["app.kubernetes.io/version"] = release[0].version
		}
	}
	return all, nil
}

// field returns the value at a path of keys, or nil.
func field(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// text is objects as one YAML stream.
func text(header string, all []object) ([]byte, error) {
	var out bytes.Buffer
	for line := range strings.Lines(header) {
		out.WriteString("# " + line)
	}
	for _, o := range all {
		one, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write %v %v: %w", o["kind"], field(o, "metadata", "name"), err)
		}
		out.WriteString("---\n")
		out.Write(one)
	}
	return out.Bytes(), nil
}

// manifest renders one of the manifests for a registry.
func (m *maker) manifest(name string, release []image, registry string) ([]object, error) {
	all, err := render(m.root, sources[name])
	if err != nil {
		return nil, err
	}
	return pinned(all, release, registry)
}

// manifests writes both manifests, the chart and the plugin's manifest.
func (m *maker) manifests(context.Context) error {
	release, err := readImages(m.dist)
	if err != nil {
		return err
	}
	rendered := map[string][]object{}
	for name := range sources {
		if rendered[name], err = m.manifest(name, release, registryOf); err != nil {
			return err
		}
		header := fmt.Sprintf("Berth %s, %s\nkubectl apply --server-side -f %s.yaml, once its images are at %s; make manifest REGISTRY=HOST/PATH\nwrites one for another registry\n",
			m.is.Version, map[string]string{whole: "data and machine side", data: "the data side alone"}[name], name, registryOf)
		out, err := text(header, rendered[name])
		if err != nil {
			return err
		}
		if err := m.write(name+".yaml", out); err != nil {
			return err
		}
	}
	return errors.Join(m.chart(release, rendered), m.plugin())
}

func runManifest(ctx context.Context, args []string, out io.Writer) error {
	var o options
	var r registry
	flags := flag.NewFlagSet("manifest", flag.ContinueOnError)
	r.flags(flags)
	if err := o.parse(ctx, flags, args); err != nil {
		return err
	}
	which := whole
	if flags.NArg() > 0 {
		which = flags.Arg(0)
	}
	if sources[which] == "" || flags.NArg() > 1 {
		return fmt.Errorf("there is no manifest %q: %s is the whole, %s the data side alone", strings.Join(flags.Args(), " "), whole, data)
	}
	return writeManifest(o.dist, which, r, out)
}

// writeManifest writes a manifest of a release with its images at another registry.
func writeManifest(dist, which string, r registry, out io.Writer) error {
	release, err := readImages(dist)
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(dist, which+".yaml"))
	if err != nil {
		return fmt.Errorf("read the release's manifest: %w", err)
	}
	var swap []string
	for _, i := range release {
		at, err := r.repository(i.name)
		if err != nil {
			return err
		}
		swap = append(swap, i.at(registryOf), at.Digest(i.digest.String()).String())
	}
	_, err = strings.NewReplacer(swap...).WriteString(out, string(manifest))
	return err
}
