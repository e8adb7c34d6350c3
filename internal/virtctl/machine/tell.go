package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Tell has the launcher of a machine's guest carry out a verb that changes no object.
func Tell(ctx context.Context, c *kube.Client, name, verb string) error {
	return put(ctx, c, "virtualmachineinstances", name, verb, struct{}{})
}

// CancelEvacuation takes back that a guest is to leave its node; kind is vm or vmi.
func CancelEvacuation(ctx context.Context, c *kube.Client, kind, name string, dryRun bool) error {
	var body struct {
		DryRun []string `json:"dryRun,omitempty"`
	}
	if dryRun {
		body.DryRun = []string{metav1.DryRunAll}
	}
	return put(ctx, c, subject(kind == "vm"), name, "evacuate/cancel", body)
}

// Expand returns a machine of the cluster, or of a manifest, as its instance type and preference make it.
func Expand(ctx context.Context, c *kube.Client, name string, manifest []byte) ([]byte, error) {
	if manifest == nil {
		return Read(ctx, c, "virtualmachines", name, "expand-spec")
	}
	return c.Core.CoreV1().RESTClient().Put().AbsPath(path.Join(Group, "namespaces", c.Namespace, "expand-vm-spec")).
		SetHeader("Content-Type", "application/json").Body(manifest).Do(ctx).Raw()
}

// GraphOptions is upstream's ObjectGraphOptions.
type GraphOptions struct {
	IncludeOptionalNodes *bool                 `json:"includeOptionalNodes,omitempty"`
	LabelSelector        *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ObjectGraph is every object that a machine, or an instance, needs.
func ObjectGraph(ctx context.Context, c *kube.Client, resource, name string, o GraphOptions) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	return c.Core.CoreV1().RESTClient().Get().AbsPath(Path(c, resource, name, "objectgraph")).
		SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Raw()
}
