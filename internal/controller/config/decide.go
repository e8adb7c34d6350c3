package config

import (
	"maps"
	"slices"
	"strings"

	conditions "github.com/openshift/custom-resource-status/conditions/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdk "kubevirt.io/controller-lifecycle-operator-sdk/api"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// Name of the one CDIConfig object.
const Name = "config"

// UploadProxyService is the Service in front of the upload proxy, which an Ingress names as its backend.
const UploadProxyService = "cdi-uploadproxy"

// What the ConfigMap with the upload proxy's certificate authority is called, in the namespace of the installation.
const (
	UploadProxyBundle    = "cdi-uploadproxy-signer-bundle"
	UploadProxyBundleKey = "ca-bundle.crt"
)

// seen is everything the decision depends on.
type seen struct {
	resources []cdiv1.CDI
	classes   []string // names
	ingresses []networkingv1.Ingress
	proxyCA   string
	proxyIP   string // of the upload proxy's Service; empty: it has none
	version   string
	now       metav1.Time
}

// plan is the wanted state of the configuration objects.
type plan struct {
	config *cdiv1.CDIConfig
	// statuses by name of the CDI resource
	statuses map[string]cdiv1.CDIStatus
}

// decide is pure.
func decide(s seen) plan {
	current := active(s.resources)
	p := plan{config: show(s, current), statuses: map[string]cdiv1.CDIStatus{}}
	for _, c := range s.resources {
		switch {
		case c.DeletionTimestamp != nil: // its finalizers belong to others; there is nothing to add
		case current != nil && c.Name == current.Name:
			p.statuses[c.Name] = deployed(s, c)
		default:
			p.statuses[c.Name] = superfluous(s, c, current.Name)
		}
	}
	return p
}

// show returns the CDIConfig for the active CDI resource: its spec is the configured values, its status the values in effect.
func show(s seen, cdi *cdiv1.CDI) *cdiv1.CDIConfig {
	if cdi == nil {
		cdi = shipped()
	}
	settings := Effective(cdi)
	out := &cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: Name, Labels: labels()}}
	if mirrors := cdi.Annotations[names.RegistryMirrors]; mirrors != "" {
		out.Annotations = map[string]string{names.RegistryMirrors: mirrors}
	}
	if cdi.Spec.Config != nil {
		out.Spec = *cdi.Spec.Config.DeepCopy()
	}
	out.Status = cdiv1.CDIConfigStatus{
		ImportProxy:                    settings.ImportProxy,
		DefaultPodResourceRequirements: &settings.Resources,
		Preallocation:                  settings.Preallocation,
		ImagePullSecrets:               settings.ImagePullSecrets,
		FilesystemOverhead:             perClass(settings.Overhead, s.classes),
		// ScratchSpaceStorageClass stays empty: nothing here needs scratch space, so no class is used for it.
	}
	if url := uploadProxyURL(settings, s); url != "" {
		out.Status.UploadProxyURL = &url
	}
	if s.proxyCA != "" {
		out.Status.UploadProxyCA = &s.proxyCA
	}
	return out
}

func labels() map[string]string {
	return map[string]string{"app": "containerized-data-importer", "app.kubernetes.io/managed-by": "berth"}
}

// perClass spells the overhead out for every class there is, so that a client needs no rule to read it.
func perClass(o cdiv1.FilesystemOverhead, classes []string) *cdiv1.FilesystemOverhead {
	out := &cdiv1.FilesystemOverhead{Global: o.Global, StorageClass: maps.Clone(o.StorageClass)}
	for _, class := range classes {
		if out.StorageClass == nil {
			out.StorageClass = map[string]cdiv1.Percent{}
		}
		out.StorageClass[class] = claim.OverheadOf(&o, class)
	}
	return out
}

// uploadProxyURL returns the administrator's URL, else the host of an Ingress in front of the proxy, else the address of its
// Service, which works inside the cluster's network.
func uploadProxyURL(settings Settings, s seen) string {
	if settings.UploadProxyURL != "" {
		return settings.UploadProxyURL
	}
	var hosts []string
	for _, in := range s.ingresses {
		if host := hostFor(in); host != "" {
			hosts = append(hosts, host)
		}
	}
	switch {
	case len(hosts) == 0 && s.proxyIP == "":
		return ""
	case len(hosts) == 0 && strings.Contains(s.proxyIP, ":"):
		return "https://[" + s.proxyIP + "]"
	case len(hosts) == 0:
		return "https://" + s.proxyIP
	}
	return slices.Min(hosts) // of several any would do, but always the same one
}

func hostFor(in networkingv1.Ingress) string {
	for _, rule := range in.Spec.Rules {
		if toProxy(in.Spec.DefaultBackend) && rule.Host != "" {
			return rule.Host
		}
		if rule.HTTP == nil {
			continue
		}
		for _, path := range rule.HTTP.Paths {
			if toProxy(&path.Backend) && rule.Host != "" {
				return rule.Host
			}
		}
	}
	return ""
}

func toProxy(b *networkingv1.IngressBackend) bool {
	return b != nil && b.Service != nil && b.Service.Name == UploadProxyService
}

func deployed(s seen, c cdiv1.CDI) cdiv1.CDIStatus {
	return status(s, c, sdk.PhaseDeployed, []conditions.Condition{
		{Type: conditions.ConditionAvailable, Status: corev1.ConditionTrue, Reason: "DeployCompleted",
			Message: "The settings are in force; CDIConfig " + Name + " shows them"},
		{Type: conditions.ConditionProgressing, Status: corev1.ConditionFalse},
		{Type: conditions.ConditionDegraded, Status: corev1.ConditionFalse},
	})
}

func superfluous(s seen, c cdiv1.CDI, current string) cdiv1.CDIStatus {
	message := "CDI " + current + " is older and is the one that counts; delete one of the two"
	return status(s, c, sdk.PhaseError, []conditions.Condition{
		{Type: conditions.ConditionAvailable, Status: corev1.ConditionFalse, Reason: "NotActive", Message: message},
		{Type: conditions.ConditionProgressing, Status: corev1.ConditionFalse},
		{Type: conditions.ConditionDegraded, Status: corev1.ConditionTrue, Reason: "NotActive", Message: message},
	})
}

// status keeps the time of every unchanged condition, so that nothing is written when nothing changed.
func status(s seen, c cdiv1.CDI, phase sdk.Phase, want []conditions.Condition) cdiv1.CDIStatus {
	for i := range want {
		want[i].LastTransitionTime, want[i].LastHeartbeatTime = s.now, s.now
		old := conditions.FindStatusCondition(c.Status.Conditions, want[i].Type)
		if old == nil {
			continue
		}
		if old.Status == want[i].Status {
			want[i].LastTransitionTime = old.LastTransitionTime
		}
		if old.Status == want[i].Status && old.Reason == want[i].Reason && old.Message == want[i].Message {
			want[i].LastHeartbeatTime = old.LastHeartbeatTime
		}
	}
	return cdiv1.CDIStatus{Status: sdk.Status{
		Phase: phase, Conditions: want,
		OperatorVersion: s.version, TargetVersion: s.version, ObservedVersion: s.version,
	}}
}
