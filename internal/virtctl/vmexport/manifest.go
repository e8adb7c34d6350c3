package vmexport

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"

	"sigs.k8s.io/yaml"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Manifest says which of an export's manifests the user wants.
type Manifest struct {
	Secret bool // with the Secret that has the token
	JSON   bool // instead of YAML
}

// Manifests writes the objects by which what is exported is made again elsewhere. The export stays: they name its server.
func Manifests(ctx context.Context, c *kube.Client, o Options, m Manifest, standard, out io.Writer) error {
	o.Keep, o.Delete = true, false
	r := &run{Options: o, cluster: c, out: out}
	return r.within(ctx, func() error {
		objects, err := r.manifests(ctx, m)
		if err != nil {
			return err
		}
		text, err := written(objects, m.JSON)
		if err != nil {
			return err
		}
		if o.Output == "" || o.Output == "-" {
			_, err = standard.Write(text)
			return err
		}
		return os.WriteFile(o.Output, text, 0o600) // a token may be in it
	})
}

func (r *run) manifests(ctx context.Context, m Manifest) ([]json.RawMessage, error) {
	e, err := r.ready(ctx)
	if err != nil {
		return nil, err
	}
	offer := e.Status.Links.Internal
	kinds := []export.ManifestType{export.AllManifests}
	if m.Secret {
		kinds = append(kinds, export.AuthHeader)
	}
	var all []json.RawMessage
	for _, kind := range kinds {
		l := link{cert: offer.Cert}
		for _, at := range offer.Manifests {
			if at.Type == kind {
				l.url = at.URL
			}
		}
		if l.url == "" {
			return nil, fmt.Errorf("unable to access the manifest info from '%s/%s' VirtualMachineExport", e.Namespace, e.Name)
		}
		if err := r.open(ctx, e, &l); err != nil {
			return nil, err
		}
		objects, err := r.fetch(ctx, l)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// longest is more than manifests ever are.
const longest = 1 << 20

// fetch reads the objects of one List.
func (r *run) fetch(ctx context.Context, l link) ([]json.RawMessage, error) {
	w, err := r.wayTo(ctx, l)
	if err != nil {
		return nil, err
	}
	defer w.close()
	w.accept = "application/json"
	answer, err := w.get(ctx, http.MethodGet, l.url, 0, "")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() // it was read
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, longest)).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	return list.Items, nil
}

// written returns the objects as a List of JSON, or as documents of YAML.
func written(objects []json.RawMessage, asJSON bool) ([]byte, error) {
	if asJSON {
		return json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}, "", "  ")
	}
	var out []byte
	for _, o := range objects {
		text, err := yaml.JSONToYAML(o)
		if err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		out = append(append(out, "---\n"...), text...)
	}
	return out, nil
}
