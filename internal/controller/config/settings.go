// Package config turns the CDI resource, in which an administrator configures, into the settings in force, shows them
// in the CDIConfig object that clients read, and says in the CDI resource's status that they were taken.
//
// Other controllers read the settings through Reader, live: a change of the CDI resource holds for the next decision.
// The package installs nothing and restarts nothing; fields of the CDI resource that ask an operator to (replicas,
// patches, flags) are shown as they are and have no effect here.
package config

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdk "kubevirt.io/controller-lifecycle-operator-sdk/api"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// Feature gates of the CDI resource's spec.config.featureGates.
const (
	HonorWaitForFirstConsumer = "HonorWaitForFirstConsumer"
	DataVolumeClaimAdoption   = "DataVolumeClaimAdoption"
)

// Settings are the values in effect: the administrator's, and the defaults of all others.
type Settings struct {
	FeatureGates          []string
	Overhead              cdiv1.FilesystemOverhead
	Resources             corev1.ResourceRequirements // of a worker
	Preallocation         bool
	ImportProxy           *cdiv1.ImportProxy
	InsecureRegistries    []string
	Mirrors               importsource.Mirrors // of registries
	ImagePullSecrets      []corev1.LocalObjectReference
	ImagePullPolicy       corev1.PullPolicy
	CloneStrategyOverride *cdiv1.CDICloneStrategy
	// CompleteClaims says whether the webhook fills in claims that are labelled for it.
	CompleteClaims bool
	// Workers constrains the nodes workers run on, besides what their claims do.
	Workers sdk.NodePlacement
	// UploadProxyURL is the administrator's; "" means that it is looked up.
	UploadProxyURL string
}

// Enabled reports whether a feature gate is on.
func (s Settings) Enabled(gate string) bool { return slices.Contains(s.FeatureGates, gate) }

// shipped returns the CDI resource of an installation, whose settings apply also if it was deleted.
func shipped() *cdiv1.CDI {
	return &cdiv1.CDI{Spec: cdiv1.CDISpec{
		Config: &cdiv1.CDIConfigSpec{FeatureGates: []string{HonorWaitForFirstConsumer}},
	}}
}

// defaultResources returns those of a worker. They are small enough for a namespace with a quota, and enough: a worker needs at
// most 128 MiB whatever it moves.
func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("60M"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("750m"), corev1.ResourceMemory: resource.MustParse("600M"),
		},
	}
}

// Effective returns the settings that a CDI resource makes; nil stands for the one that is shipped.
func Effective(cdi *cdiv1.CDI) Settings {
	if cdi == nil {
		cdi = shipped()
	}
	cdi = cdi.DeepCopy()
	s := Settings{
		Overhead:              cdiv1.FilesystemOverhead{Global: claim.DefaultOverhead},
		Resources:             defaultResources(),
		ImagePullPolicy:       cdi.Spec.ImagePullPolicy,
		CloneStrategyOverride: cdi.Spec.CloneStrategyOverride,
		CompleteClaims:        true,
		Workers:               cdi.Spec.Workloads,
	}
	// An invalid one is refused by admission; one that was not checked is ignored.
	s.Mirrors, _ = importsource.ParseMirrors(cdi.Annotations[names.RegistryMirrors])
	c := cdi.Spec.Config
	if c == nil {
		return s
	}
	s.FeatureGates = c.FeatureGates
	s.ImportProxy = c.ImportProxy
	s.InsecureRegistries = c.InsecureRegistries
	s.ImagePullSecrets = c.ImagePullSecrets
	s.CompleteClaims = c.WebhookPvcRendering != cdiv1.WebhookPvcRenderingDisabled
	if c.UploadProxyURLOverride != nil {
		s.UploadProxyURL = *c.UploadProxyURLOverride
	}
	if c.Preallocation != nil {
		s.Preallocation = *c.Preallocation
	}
	if c.PodResourceRequirements != nil {
		s.Resources = overlay(s.Resources, *c.PodResourceRequirements)
	}
	if o := c.FilesystemOverhead; o != nil {
		s.Overhead.StorageClass = o.StorageClass
		if o.Global != "" {
			s.Overhead.Global = o.Global
		}
	}
	return s
}

// overlay writes what is configured over the defaults. A default that contradicts it gives way: a request above the
// default limit raises the limit, a limit below the default request lowers the request.
func overlay(defaults, configured corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := *defaults.DeepCopy()
	out.Claims = configured.Claims
	for name, request := range configured.Requests {
		out.Requests[name] = request
		if limit, ok := out.Limits[name]; ok && limit.Cmp(request) < 0 {
			out.Limits[name] = request
		}
	}
	for name, limit := range configured.Limits {
		out.Limits[name] = limit
		if request, ok := out.Requests[name]; ok && request.Cmp(limit) > 0 {
			out.Requests[name] = limit
		}
	}
	return out
}
