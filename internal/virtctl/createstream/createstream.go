// Package createstream writes the manifest of a stream: a Deployment that serves the disks in container images as LUNs, its Service,
// the Secret that machines log in with, and, if they are wanted, claims that hide where the LUNs are.
//
// It asks no cluster, and it does not look at the images.
package createstream

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/pkg/claim"
)

// Options are the flags and arguments of the command.
type Options struct {
	Name, Namespace string
	Program         string   // image with the worker
	Images          []string // LUN 0, 1, ...
	CacheSize       string
	CacheClaim      string // empty: a directory of the node, or a new claim of CacheClass
	CacheClass      *storagev1.StorageClass
	Credentials     string // a Secret, in the namespace
	CA              string // a ConfigMap
	Architecture    string
	PlainHTTP       bool
	Claims          string // size that claims of the LUNs say; empty: none are written
	Password        string // empty: a new one
}

// Target returns the name of the stream's target. Machines that have the same LUN know that by it.
func (o Options) Target() string {
	if o.Namespace != "" {
		return "iqn.2026-01.dev.berth:" + o.Namespace + "." + o.Name
	}
	return "iqn.2026-01.dev.berth:" + o.Name
}

const (
	port      = 3260
	probe     = 8080
	user      = 107
	mostNames = 40 // of the name: with what is added it is still a label
	login     = "stream"
)

// Objects returns the manifest's.
func Objects(o Options) ([]any, error) {
	if bad := validation.IsDNS1035Label(o.Name); len(bad) > 0 || len(o.Name) > mostNames {
		return nil, fmt.Errorf("a stream cannot be called %q: use lower case letters, digits and dashes, and at most %d of them", o.Name, mostNames)
	}
	if len(o.Images) == 0 {
		return nil, errors.New("say which images are to be served, after the flags")
	}
	if o.Password == "" {
		o.Password = rand.Text()[:16] // as long as initiators take
	}
	cache, err := size("--cache-size", o.CacheSize)
	if err != nil {
		return nil, err
	}
	out := []any{o.secret(), o.service()}
	if o.CacheClass != nil {
		c, err := o.cacheClaim(cache)
		if err != nil {
			return nil, err
		}
		out, o.CacheClaim = append(out, c), c.Name
	}
	out = append(out, o.deployment(cache))
	if o.Claims == "" {
		return out, nil
	}
	if o.Namespace == "" {
		return nil, errors.New("claims need --namespace: the volumes behind them belong to no namespace and name it")
	}
	capacity, err := size("--claims", o.Claims)
	if err != nil {
		return nil, err
	}
	for i := range o.Images {
		out = append(out, o.volume(i, capacity), o.claim(i, capacity))
	}
	return out, nil
}

func size(flag, text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return q, fmt.Errorf("%s %q is not a size like 10Gi", flag, text)
	}
	return q, nil
}

// beside is the space on the cache's medium besides the kept pieces: for the indexes, and for pieces that are being fetched.
var beside = resource.MustParse("256Mi")

// cacheClaim returns a new claim for the cache. It outlives the pod, and what was fetched with it.
func (o Options) cacheClaim(cache resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	if o.CacheClaim != "" {
		return nil, errors.New("--usage-type makes a claim for the cache, and --cache-claim names one: leave one of them out")
	}
	cache.Add(beside)
	room, err := claim.FilesystemOf(o.CacheClass).Inflate(cache.Value(), claim.OverheadOf(nil, o.CacheClass.Name))
	if err != nil {
		return nil, fmt.Errorf("find the size of a claim for the cache: %w", err)
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: o.meta(o.Name + "-cache"),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			StorageClassName: &o.CacheClass.Name, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				"storage": *resource.NewQuantity(room, resource.BinarySI)}},
		},
	}, nil
}

// ForUsage returns the class that offers a usage type.
func ForUsage(classes []storagev1.StorageClass, usage string) (*storagev1.StorageClass, error) {
	if class := claim.ForUsage(classes, usage); class != nil {
		return class, nil
	}
	if there := claim.UsageTypes(classes); len(there) > 0 {
		return nil, fmt.Errorf("no StorageClass offers usage type %s; there are: %s", usage, strings.Join(there, ", "))
	}
	return nil, fmt.Errorf("no StorageClass offers a usage type; annotate one with %s%s", claim.UsageTypePrefix, usage)
}

func (o Options) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: o.Namespace, Labels: o.labels()}
}

func (o Options) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "berth-stream", "app.kubernetes.io/instance": o.Name}
}

func (o Options) secret() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: o.meta(o.Name), Type: "kubernetes.io/iscsi-chap",
		StringData: map[string]string{"node.session.auth.username": login, "node.session.auth.password": o.Password},
	}
}

// service returns where machines find the target. It is there while an image cannot be opened too: the LUNs of the others are.
func (o Options) service() *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: o.meta(o.Name),
		Spec: corev1.ServiceSpec{Selector: o.labels(), PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{Name: "iscsi", Port: port, TargetPort: intstr.FromString("iscsi")}}},
	}
}

func (o Options) args() []string {
	args := []string{"stream", "--target", o.Target(), "--chap", "/login", "--cache", "/cache", "--cache-size", o.CacheSize, "--health", fmt.Sprintf(":%d", probe)}
	if o.Credentials != "" {
		args = append(args, "--credentials", "/credentials")
	}
	if o.CA != "" {
		args = append(args, "--ca", "/ca")
	}
	if o.Architecture != "" {
		args = append(args, "--arch", o.Architecture)
	}
	if o.PlainHTTP {
		args = append(args, "--plain-http")
	}
	return append(args, o.Images...)
}

// volumes returns what is mounted, and where.
func (o Options) volumes(cache resource.Quantity) (volumes []corev1.Volume, mounts []corev1.VolumeMount) {
	add := func(name string, readOnly bool, s corev1.VolumeSource) {
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: s})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: "/" + name, ReadOnly: readOnly})
	}
	if o.CacheClaim != "" {
		add("cache", false, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.CacheClaim}})
	} else {
		cache.Add(beside) // the kubelet ends a pod that has more than this
		add("cache", false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &cache}})
	}
	add("login", true, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: o.Name}})
	if o.Credentials != "" {
		add("credentials", true, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: o.Credentials}})
	}
	if o.CA != "" {
		add("ca", true, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: o.CA}}})
	}
	return volumes, mounts
}

func (o Options) deployment(cache resource.Quantity) *appsv1.Deployment {
	volumes, mounts := o.volumes(cache)
	container := corev1.Container{
		Name: "stream", Image: o.Program, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/usr/bin/worker"}, Args: o.args(),
		Ports:          []corev1.ContainerPort{{Name: "iscsi", ContainerPort: port}, {Name: "health", ContainerPort: probe}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("health")}}, PeriodSeconds: 5},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("384Mi")},
		},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		VolumeMounts: mounts,
	}
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: o.meta(o.Name),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: o.labels()},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, // the cache is for one
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: o.labels()},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
					SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user),
						FSGroup: ptr.To[int64](user), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
					Containers: []corev1.Container{container}, Volumes: volumes,
				},
			},
		},
	}
}

// claimName returns what a LUN's claim is called.
func (o Options) claimName(lun int) string { return fmt.Sprintf("%s-%d", o.Name, lun) }

// volume returns a PersistentVolume for a LUN. QEMU opens it itself: no node needs an initiator.
func (o Options) volume(lun int, capacity resource.Quantity) *corev1.PersistentVolume {
	meta := o.meta(o.Namespace + "-" + o.claimName(lun))
	meta.Namespace = ""
	meta.Annotations = map[string]string{"berth.dev/direct": "true"}
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: meta,
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{"storage": capacity}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			VolumeMode: ptr.To(corev1.PersistentVolumeBlock), PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: o.Namespace, Name: o.claimName(lun)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{
				TargetPortal: strings.Join([]string{o.Name, o.Namespace, "svc"}, ".") + fmt.Sprintf(":%d", port), IQN: o.Target(), Lun: int32(lun), ReadOnly: true,
				SessionCHAPAuth: true, SecretRef: &corev1.SecretReference{Namespace: o.Namespace, Name: o.Name},
			}},
		},
	}
}

func (o Options) claim(lun int, capacity resource.Quantity) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: o.meta(o.claimName(lun)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, VolumeMode: ptr.To(corev1.PersistentVolumeBlock), StorageClassName: ptr.To(""),
			VolumeName: o.Namespace + "-" + o.claimName(lun), Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": capacity}},
		},
	}
}
