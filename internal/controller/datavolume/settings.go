package datavolume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/render"
)

// settings is what the administrator decided, read anew for every decision: the CDI resource says what is wanted,
// CDIConfig what that comes to.
type settings struct {
	gates       []string
	overhead    *cdiv1.FilesystemOverhead
	preallocate bool
	strategy    *cdiv1.CDICloneStrategy
	network     render.Network
	worker      render.Settings
}

func (s settings) gate(name string) bool { return slices.Contains(s.gates, name) }

// defaultResources are those CDI gives its workers; quotas have been written with them in mind.
var defaultResources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("60M"),
	},
	Limits: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("750m"), corev1.ResourceMemory: resource.MustParse("600M"),
	},
}

func readSettings(ctx context.Context, c client.Reader, image string) (settings, error) {
	s := settings{worker: render.Settings{Image: image, Resources: defaultResources}}
	var all cdiv1.CDIList
	if err := c.List(ctx, &all); err != nil {
		return s, fmt.Errorf("list CDI resources: %w", err)
	}
	if len(all.Items) == 0 {
		// Without anybody's decision the careful behaviour holds: a worker never chooses a node for a disk.
		s.gates = []string{gateHonorWaitForFirstConsumer}
	} else {
		oldest := slices.MinFunc(all.Items, older)
		s.configure(&oldest.Spec)
	}
	var effective cdiv1.CDIConfig
	err := c.Get(ctx, types.NamespacedName{Name: "config"}, &effective)
	if err != nil && !apierrors.IsNotFound(err) {
		return s, fmt.Errorf("read CDIConfig: %w", err)
	}
	s.refine(&effective.Status)
	return s, nil
}

// older orders by age, then name: of several CDI resources the first one made is the one that counts.
func older(a, b cdiv1.CDI) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	if a.Name < b.Name {
		return -1
	}
	return 1
}

func (s *settings) configure(spec *cdiv1.CDISpec) {
	s.strategy = spec.CloneStrategyOverride
	s.worker.PullPolicy = spec.ImagePullPolicy
	s.worker.NodeSelector = spec.Workloads.NodeSelector
	s.worker.Affinity = spec.Workloads.Affinity
	s.worker.Tolerations = spec.Workloads.Tolerations
	config := spec.Config
	if config == nil {
		return
	}
	s.gates = config.FeatureGates
	s.overhead = config.FilesystemOverhead
	s.preallocate = config.Preallocation != nil && *config.Preallocation
	s.network.InsecureRegistries = config.InsecureRegistries
	s.worker.PullSecrets = config.ImagePullSecrets
	s.proxy(config.ImportProxy)
	if config.PodResourceRequirements != nil {
		s.worker.Resources = *config.PodResourceRequirements
	}
}

// refine takes what CDIConfig's controller worked out beyond what was asked for.
func (s *settings) refine(status *cdiv1.CDIConfigStatus) {
	if status.FilesystemOverhead != nil {
		s.overhead = status.FilesystemOverhead
	}
	if status.DefaultPodResourceRequirements != nil {
		s.worker.Resources = *status.DefaultPodResourceRequirements
	}
	s.proxy(status.ImportProxy)
}

func (s *settings) proxy(p *cdiv1.ImportProxy) {
	set := func(to, from *string) {
		if from != nil {
			*to = *from
		}
	}
	if p != nil {
		set(&s.network.HTTPProxy, p.HTTPProxy)
		set(&s.network.HTTPSProxy, p.HTTPSProxy)
		set(&s.network.NoProxy, p.NoProxy)
	}
}
