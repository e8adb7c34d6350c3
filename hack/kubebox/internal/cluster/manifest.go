package cluster

import (
	"bytes"
	"context"
	_ "embed" // the cluster's own objects
	"path/filepath"
	"text/template"

	"github.com/berth-vm/berth/hack/kubebox/internal/build"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/storage"
)

//go:embed manifest.yaml
var manifestText string

var manifest = template.Must(template.New("manifest").Option("missingkey=error").Parse(manifestText))

// renderManifest returns the objects every cluster has: storage classes and the DNS Service.
func renderManifest() ([]byte, error) {
	var out bytes.Buffer
	err := manifest.Execute(&out, map[string]string{
		"Provisioner": storage.Provisioner, "PathProvisioner": storage.PathProvisioner, "StaticClass": plan.StaticClass, "DNSIP": plan.DNSIP, "ControlIP": plan.ControlIP,
	})
	return out.Bytes(), err
}

func (b *Box) applyManifests(ctx context.Context) error {
	objects, err := renderManifest()
	if err != nil {
		return err
	}
	apply := []string{"apply", "--server-side", "--force-conflicts", "-f"}
	if err := b.kubectl(ctx, bytes.NewReader(objects), append(apply, "-")...); err != nil {
		return err
	}
	module, err := build.ModuleDir(ctx, b.Source, build.SnapshotController, "github.com/kubernetes-csi/external-snapshotter/client/v8")
	if err != nil {
		return err
	}
	crds, err := filepath.Glob(filepath.Join(module, "config", "crd", "snapshot.storage.k8s.io_*.yaml"))
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := b.kubectl(ctx, nil, append(apply, crd)...); err != nil {
			return err
		}
	}
	return nil
}
