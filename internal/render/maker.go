package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/containervolume"
)

// Pods of containers that make volumes.
const (
	VolumeMaker  = "volume-maker"           // value of LabelMachine on them
	LabelMaker   = "berth.dev/volume-maker" // the name of the machine they are for
	makerPort    = "volume"                 // the port that is asked
	makerVolume  = "berth-keys"
	MakerKeysDir = "/run/berth/volume" // tls.crt, tls.key and ca.crt of the container
)

// makerStays is how many seconds a deleted pod continues to run, in addition to the time that its machine's guest has to end: the
// pod has to answer the request to delete its volume, and the deletion of a namespace deletes machine and pod at the same moment.
const makerStays = 60

// Maker holds all inputs of the pod of a container that makes a volume.
type Maker struct {
	Record *accessv1.ContainerVolume
	Grace  int64 // how long the machine's guest may take to end
}

// MakerName is the name of the record of a machine's volume, and of its pod and Secret: another machine of the name, or another volume,
// has another.
func MakerName(machine string, uid types.UID, volume string) string {
	sum := sha256.Sum256([]byte(string(uid) + "/" + volume))
	return fit("volume-" + machine + "-" + volume + "-" + hex.EncodeToString(sum[:4]))
}

// MakerServes returns the name in the container's certificate. No other pod has that name.
func MakerServes(record types.UID) string { return string(record) + ".volume.berth.dev" }

// MakerPort is the port that the container is asked at.
func MakerPort(s *kubevirt.ContainerSource) int {
	for _, p := range s.Ports {
		if p.Name == makerPort {
			return int(p.ContainerPort)
		}
	}
	return containervolume.Port
}

// Pod is the container's pod.
func (m Maker) Pod() *corev1.Pod {
	r := m.Record
	s := r.Spec.Container
	c := s.Container("volume")
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: makerVolume, MountPath: MakerKeysDir, ReadOnly: true})
	stays := m.Grace + makerStays
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: stays}}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.Name, Namespace: r.Namespace,
			Labels:          map[string]string{LabelMachine: VolumeMaker, LabelMaker: r.Spec.Machine, LabelVolume: volumeLabel(r.Spec.Volume)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r, accessv1.GroupVersion.WithKind("ContainerVolume"))},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(s.ServiceAccountName != ""),
			ServiceAccountName:            s.ServiceAccountName,
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(stays + 15),
			ImagePullSecrets:              s.ImagePullSecrets,
			SecurityContext:               makerSecurity(&c),
			Containers:                    []corev1.Container{c},
			Volumes:                       makerVolumes(r.Name, s.Volumes),
		},
	}
	return pod
}

// volumeLabel is a volume's name where it can be a label.
func volumeLabel(name string) string { return fit(name) }

// makerSecurity fills in what the standard asks for and the container does not say. What it says otherwise stays, and is refused.
func makerSecurity(c *corev1.Container) *corev1.PodSecurityContext {
	own := c.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
		c.SecurityContext = own
	}
	if own.AllowPrivilegeEscalation == nil {
		own.AllowPrivilegeEscalation = ptr.To(false)
	}
	if own.Capabilities == nil {
		own.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	user, group := ptr.Deref(own.RunAsUser, guestUser), ptr.Deref(own.RunAsGroup, ptr.Deref(own.RunAsUser, guestUser))
	return &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: &user, RunAsGroup: &group, FSGroup: &group,
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
		// It is asked at port 443, and it is not root.
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
	}
}

func makerVolumes(secret string, own []kubevirt.ContainerPodVolume) []corev1.Volume {
	var out []corev1.Volume
	for _, v := range own {
		out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: v.PersistentVolumeClaim, EmptyDir: v.EmptyDir, Secret: v.Secret, ConfigMap: v.ConfigMap}})
	}
	return append(out, corev1.Volume{Name: makerVolume, VolumeSource: secretSource(secret, nil)})
}

// standards are the pod security standards of every version, which takes a while to put together.
var standards = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })

// Restricted returns why the container may not be run: the pod security standard "restricted" must allow it, whatever the
// namespace allows; "" if it may. Otherwise a user could get a privileged pod through a machine.
func Restricted(s *kubevirt.ContainerSource) (string, error) {
	evaluator, err := standards()
	if err != nil {
		return "", fmt.Errorf("read the pod security standards: %w", err)
	}
	pod := Maker{Record: &accessv1.ContainerVolume{Spec: accessv1.ContainerVolumeSpec{Container: *s}}}.Pod()
	if why := orphanMount(pod); why != "" {
		return why, nil
	}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(
		api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec))
	if result.Allowed {
		return "", nil
	}
	return "the pod security standard restricted does not allow it: " + result.ForbiddenDetail(), nil
}

// orphanMount: a mount names no volume, or takes the place of the keys.
func orphanMount(pod *corev1.Pod) string {
	names := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if names[v.Name] {
			return fmt.Sprintf("two of its volumes are called %s", v.Name)
		}
		names[v.Name] = true
	}
	c := pod.Spec.Containers[0]
	for i, m := range c.VolumeMounts {
		switch mine := i == len(c.VolumeMounts)-1; {
		case !names[m.Name]:
			return fmt.Sprintf("it mounts %s, which is none of its volumes", m.Name)
		case !mine && (m.Name == makerVolume || strings.HasPrefix(MakerKeysDir+"/", strings.TrimSuffix(m.MountPath, "/")+"/")):
			return fmt.Sprintf("its certificates are at %s, and it mounts %s at %s", MakerKeysDir, m.Name, m.MountPath)
		}
	}
	for _, d := range c.VolumeDevices {
		if !names[d.Name] {
			return fmt.Sprintf("it has the device %s, which is none of its volumes", d.Name)
		}
	}
	return ""
}

// MakerKeys is the Secret with the container's certificate.
func MakerKeys(r *accessv1.ContainerVolume, files map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.Name, Namespace: r.Namespace, Labels: Labels(""),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r, accessv1.GroupVersion.WithKind("ContainerVolume"))},
		},
		Type: corev1.SecretTypeTLS, Data: files,
	}
}
