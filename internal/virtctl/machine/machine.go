// Package machine asks a cluster's aggregated API (subresources.kubevirt.io) for what changes a machine without changing its spec:
// to start, to stop, to take a disk. It only sends requests; the server carries them out.
package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Group is the path of the subresources.
const Group = "/apis/subresources.kubevirt.io/v1"

// Change is a request to start, stop or restart. Its fields are spelled as kubevirt.io spells them.
type Change struct {
	Paused bool     `json:"paused,omitempty"`
	DryRun []string `json:"dryRun,omitempty"`
	// GracePeriod is how long the guest may take to stop; nil is the machine's own time. A stop and a restart spell it
	// differently.
	GracePeriod        *int64 `json:"gracePeriod,omitempty"`
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// Start starts a machine.
func Start(ctx context.Context, c *kube.Client, name string, change Change) error {
	return put(ctx, c, "virtualmachines", name, "start", change)
}

// Stop stops a machine.
func Stop(ctx context.Context, c *kube.Client, name string, change Change) error {
	return put(ctx, c, "virtualmachines", name, "stop", change)
}

// Restart stops a machine and starts it again.
func Restart(ctx context.Context, c *kube.Client, name string, change Change) error {
	change.GracePeriod, change.GracePeriodSeconds = nil, change.GracePeriod
	return put(ctx, c, "virtualmachines", name, "restart", change)
}

// Migrate moves a machine's guest to another node.
func Migrate(ctx context.Context, c *kube.Client, name string, o kubevirt.MigrateOptions) error {
	return put(ctx, c, "virtualmachines", name, "migrate", o)
}

// Pause stops the processors of a machine's guest.
func Pause(ctx context.Context, c *kube.Client, name string, change Change) error {
	return put(ctx, c, "virtualmachineinstances", name, "pause", change)
}

// Unpause lets them continue.
func Unpause(ctx context.Context, c *kube.Client, name string, change Change) error {
	return put(ctx, c, "virtualmachineinstances", name, "unpause", change)
}

// Said is what a machine or an instance says about itself: its phase, and why it is not ready.
func Said(phase string, conditions []kubevirt.Condition) string {
	for _, c := range conditions {
		if c.Type == "Ready" && c.Message != "" {
			return phase + ", " + c.Message
		}
	}
	return phase
}

// Read reads a subresource.
func Read(ctx context.Context, c *kube.Client, resource, name, verb string) ([]byte, error) {
	return c.Core.CoreV1().RESTClient().Get().AbsPath(Path(c, resource, name, verb)).Do(ctx).Raw()
}

// Source returns the volume of that name as a source that can be added to a machine.
func Source(ctx context.Context, c *kube.Client, name string) (*kubevirt.HotplugVolumeSource, error) {
	volume, err := kube.DataVolumes.Get(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if volume != nil {
		return &kubevirt.HotplugVolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name, Hotpluggable: true}}, nil
	}
	_, err = c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("Volume %s is not a DataVolume or PersistentVolumeClaim", name) //nolint:staticcheck // the text clients know
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %s: %w", name, err)
	}
	return &kubevirt.HotplugVolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name, Hotpluggable: true}}, nil
}

// AddVolume adds a volume to a machine: permanently, or to its present run only.
func AddVolume(ctx context.Context, c *kube.Client, name string, o kubevirt.AddVolumeOptions, persist bool) error {
	return put(ctx, c, subject(persist), name, "addvolume", o)
}

// RemoveVolume takes a volume from a machine: permanently, or from its present run only.
func RemoveVolume(ctx context.Context, c *kube.Client, name string, o kubevirt.RemoveVolumeOptions, persist bool) error {
	return put(ctx, c, subject(persist), name, "removevolume", o)
}

// Keep has a machine's copy of a volume written to a claim.
func Keep(ctx context.Context, c *kube.Client, name string, o kubevirt.KeepOptions) error {
	return put(ctx, c, "virtualmachineinstances", name, "keep", o)
}

func subject(persist bool) string {
	if persist {
		return "virtualmachines"
	}
	return "virtualmachineinstances"
}

func put(ctx context.Context, c *kube.Client, resource, name, verb string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write the request to %s: %w", verb, err)
	}
	err = c.Core.CoreV1().RESTClient().Put().AbsPath(Path(c, resource, name, verb)).
		SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", verb, c.Namespace, name, err)
	}
	return nil
}

// Path returns a subresource's path.
func Path(c *kube.Client, resource, name, verb string) string {
	return path.Join(Group, "namespaces", c.Namespace, resource, name, verb)
}
