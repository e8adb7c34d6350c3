package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	conditions "github.com/openshift/custom-resource-status/conditions/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdk "kubevirt.io/controller-lifecycle-operator-sdk/api"
)

func cdi(name string, age time.Duration, config *cdiv1.CDIConfigSpec) cdiv1.CDI {
	return cdiv1.CDI{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec:       cdiv1.CDISpec{Config: config},
	}
}

func TestEffective(t *testing.T) {
	plain := func() Settings {
		return Settings{
			Overhead: cdiv1.FilesystemOverhead{Global: "0.06"}, Resources: defaultResources(), CompleteClaims: true,
		}
	}
	resources := func(requests, limits string) corev1.ResourceRequirements {
		r := defaultResources()
		r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = resource.MustParse(requests), resource.MustParse(limits)
		return r
	}
	memory := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(quantity)}
	}
	for name, row := range map[string]struct {
		config *cdiv1.CDIConfigSpec
		want   func(*Settings)
	}{
		"nothing configured": {nil, func(*Settings) {}},
		"empty":              {&cdiv1.CDIConfigSpec{}, func(*Settings) {}},
		"gates": {
			&cdiv1.CDIConfigSpec{FeatureGates: []string{"HonorWaitForFirstConsumer"}},
			func(s *Settings) { s.FeatureGates = []string{"HonorWaitForFirstConsumer"} },
		},
		"overhead of one class": {
			&cdiv1.CDIConfigSpec{FilesystemOverhead: &cdiv1.FilesystemOverhead{StorageClass: map[string]cdiv1.Percent{"a": "0.1"}}},
			func(s *Settings) { s.Overhead.StorageClass = map[string]cdiv1.Percent{"a": "0.1"} },
		},
		"overhead of all": {
			&cdiv1.CDIConfigSpec{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0"}},
			func(s *Settings) { s.Overhead.Global = "0" },
		},
		"a request within the default limit": {
			&cdiv1.CDIConfigSpec{PodResourceRequirements: &corev1.ResourceRequirements{Requests: memory("100M")}},
			func(s *Settings) { s.Resources = resources("100M", "600M") },
		},
		"a request above the default limit": {
			&cdiv1.CDIConfigSpec{PodResourceRequirements: &corev1.ResourceRequirements{Requests: memory("2G")}},
			func(s *Settings) { s.Resources = resources("2G", "2G") },
		},
		"a limit below the default request": {
			&cdiv1.CDIConfigSpec{PodResourceRequirements: &corev1.ResourceRequirements{Limits: memory("50M")}},
			func(s *Settings) { s.Resources = resources("50M", "50M") },
		},
		"the rest": {
			&cdiv1.CDIConfigSpec{
				UploadProxyURLOverride: ptr.To("https://up.example.com"), Preallocation: ptr.To(true),
				ImportProxy:        &cdiv1.ImportProxy{HTTPProxy: ptr.To("http://proxy:3128")},
				InsecureRegistries: []string{"registry:5000"}, WebhookPvcRendering: cdiv1.WebhookPvcRenderingDisabled,
				ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}, ScratchSpaceStorageClass: ptr.To("ignored"),
			},
			func(s *Settings) {
				s.UploadProxyURL, s.Preallocation, s.CompleteClaims = "https://up.example.com", true, false
				s.ImportProxy = &cdiv1.ImportProxy{HTTPProxy: ptr.To("http://proxy:3128")}
				s.InsecureRegistries, s.ImagePullSecrets = []string{"registry:5000"}, []corev1.LocalObjectReference{{Name: "pull"}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := plain()
			row.want(&want)
			resource := cdi("cdi", 0, row.config)
			if diff := cmp.Diff(want, Effective(&resource)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if !Effective(nil).Enabled(HonorWaitForFirstConsumer) {
		t.Error("without a CDI resource the shipped gate is off")
	}
	if empty := cdi("cdi", 0, nil); Effective(&empty).Enabled(HonorWaitForFirstConsumer) {
		t.Error("a CDI resource without the gate turns it on")
	}
}

func TestActive(t *testing.T) {
	old, young, gone := cdi("b", time.Hour, nil), cdi("a", 0, nil), cdi("gone", 2*time.Hour, nil)
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	twin := cdi("c", time.Hour, nil)
	for name, row := range map[string]struct {
		all  []cdiv1.CDI
		want string
	}{
		"none":              {nil, ""},
		"being deleted":     {[]cdiv1.CDI{gone}, ""},
		"the oldest":        {[]cdiv1.CDI{young, gone, old}, "b"},
		"of twins, by name": {[]cdiv1.CDI{twin, old}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if c := active(row.all); c != nil {
				got = c.Name
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func ingress(host, service string) networkingv1.Ingress {
	return networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: service},
			}}},
		}},
	}}}}
}

func TestDecideConfig(t *testing.T) {
	byDefault := ingress("all.example.com", "other")
	byDefault.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: UploadProxyService}}
	for name, row := range map[string]struct {
		seen seen
		want cdiv1.CDIConfigStatus
	}{
		"an empty cluster": {seen{}, cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"}}},
		"classes": {
			seen{classes: []string{"a", "b"}, resources: []cdiv1.CDI{cdi("cdi", 0, &cdiv1.CDIConfigSpec{
				FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.1", StorageClass: map[string]cdiv1.Percent{"b": "0.2", "later": "0.3"}},
			})}},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{
				Global: "0.1", StorageClass: map[string]cdiv1.Percent{"a": "0.1", "b": "0.2", "later": "0.3"}}},
		},
		"scratch space is not used": {
			seen{resources: []cdiv1.CDI{cdi("cdi", 0, &cdiv1.CDIConfigSpec{ScratchSpaceStorageClass: ptr.To("fast")})}},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"}},
		},
		"an ingress": {
			seen{proxyCA: "PEM", ingresses: []networkingv1.Ingress{
				ingress("shop.example.com", "shop"), ingress("up2.example.com", UploadProxyService), ingress("up1.example.com", UploadProxyService),
			}},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"},
				UploadProxyURL: ptr.To("up1.example.com"), UploadProxyCA: ptr.To("PEM")},
		},
		"the service, where nothing leads to it from outside": {
			seen{proxyIP: "10.96.0.7"},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"}, UploadProxyURL: ptr.To("https://10.96.0.7")},
		},
		"an ingress before the service": {
			seen{proxyIP: "fd00::7", ingresses: []networkingv1.Ingress{ingress("up.example.com", UploadProxyService)}},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"}, UploadProxyURL: ptr.To("up.example.com")},
		},
		"a service of the other family": {
			seen{proxyIP: "fd00::7"},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"}, UploadProxyURL: ptr.To("https://[fd00::7]")},
		},
		"an ingress with a default backend": {
			seen{ingresses: []networkingv1.Ingress{byDefault}},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"}, UploadProxyURL: ptr.To("all.example.com")},
		},
		"the administrator's URL before an ingress": {
			seen{ingresses: []networkingv1.Ingress{ingress("up.example.com", UploadProxyService)},
				resources: []cdiv1.CDI{cdi("cdi", 0, &cdiv1.CDIConfigSpec{UploadProxyURLOverride: ptr.To("https://mine")})}},
			cdiv1.CDIConfigStatus{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.06"}, UploadProxyURL: ptr.To("https://mine")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.want.DefaultPodResourceRequirements = ptr.To(defaultResources())
			got := decide(row.seen).config
			if diff := cmp.Diff(row.want, got.Status); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c := active(row.seen.resources); c != nil {
				if diff := cmp.Diff(*c.Spec.Config, got.Spec); diff != "" {
					t.Errorf("spec is not what was configured (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestDecideStatus(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1e9, 0)), metav1.NewTime(time.Unix(2e9, 0))
	first, second := cdi("first", time.Hour, nil), cdi("second", 0, nil)
	s := seen{resources: []cdiv1.CDI{second, first}, version: "v1", now: then}
	got := decide(s).statuses
	if got["first"].Phase != sdk.PhaseDeployed || got["second"].Phase != sdk.PhaseError {
		t.Errorf("phases %s and %s", got["first"].Phase, got["second"].Phase)
	}
	for _, want := range []struct {
		name      string
		condition conditions.ConditionType
		status    corev1.ConditionStatus
	}{
		{"first", conditions.ConditionAvailable, "True"}, {"first", conditions.ConditionProgressing, "False"},
		{"first", conditions.ConditionDegraded, "False"}, {"second", conditions.ConditionAvailable, "False"},
		{"second", conditions.ConditionDegraded, "True"},
	} {
		c := conditions.FindStatusCondition(got[want.name].Conditions, want.condition)
		if c == nil || c.Status != want.status || c.LastTransitionTime != then {
			t.Errorf("%s %s: got %+v, want %s", want.name, want.condition, c, want.status)
		}
	}

	// Later nothing is new, so nothing changes; when the first is gone, the second takes its place.
	first.Status, second.Status = got["first"], got["second"]
	again := decide(seen{resources: []cdiv1.CDI{second, first}, version: "v1", now: now}).statuses
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("a second look changed the status (-first +second):\n%s", diff)
	}
	alone := decide(seen{resources: []cdiv1.CDI{second}, version: "v1", now: now}).statuses["second"]
	if c := conditions.FindStatusCondition(alone.Conditions, conditions.ConditionAvailable); alone.Phase != sdk.PhaseDeployed ||
		c.Status != "True" || c.LastTransitionTime != now {
		t.Errorf("got %+v", alone)
	}
}
