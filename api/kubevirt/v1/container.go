package v1

import corev1 "k8s.io/api/core/v1"

// ContainerSource is a container that makes the volume: it is run in a pod of its own, in the machine's namespace, and asked
// over HTTPS at /volume. PUT makes the volume and is answered with what it is; DELETE deletes it. Every field but size,
// serviceAccountName, imagePullSecrets and volumes is the field of a container of Kubernetes, and what the pod security standard
// "restricted" does not allow is refused.
//
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || self.volumes.all(v, [has(v.persistentVolumeClaim), has(v.emptyDir), has(v.secret), has(v.configMap)].exists_one(x, x))",message="a volume of the container has one source: set one of persistentVolumeClaim, emptyDir, secret and configMap"
type ContainerSource struct {
	// Image is the container image.
	//
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// Command is the program; the image's own if empty.
	//
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args are the program's arguments; the image's own if empty.
	//
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// WorkingDir is where the program starts; the image's own if empty.
	WorkingDir string `json:"workingDir,omitempty"`
	// Ports of the container. The one called volume is where it is asked; 443 if there is none.
	// +listType=atomic
	Ports []corev1.ContainerPort `json:"ports,omitempty"`
	// EnvFrom are ConfigMaps and Secrets whose keys become environment variables.
	//
	// +listType=atomic
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Env are environment variables.
	//
	// +listType=atomic
	Env       []corev1.EnvVar             `json:"env,omitempty"`
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// VolumeMounts are the directories at which the container has volumes.
	//
	// +listType=atomic
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// VolumeDevices are the paths at which the container has volumes as devices.
	//
	// +listType=atomic
	VolumeDevices  []corev1.VolumeDevice `json:"volumeDevices,omitempty"`
	LivenessProbe  *corev1.Probe         `json:"livenessProbe,omitempty"`
	ReadinessProbe *corev1.Probe         `json:"readinessProbe,omitempty"`
	StartupProbe   *corev1.Probe         `json:"startupProbe,omitempty"`
	// TerminationMessagePath is the file whose text becomes the message of a container that ended.
	TerminationMessagePath   string                          `json:"terminationMessagePath,omitempty"`
	TerminationMessagePolicy corev1.TerminationMessagePolicy `json:"terminationMessagePolicy,omitempty"`
	ImagePullPolicy          corev1.PullPolicy               `json:"imagePullPolicy,omitempty"`
	SecurityContext          *corev1.SecurityContext         `json:"securityContext,omitempty"`

	// Size is the size of the volume to request; without one the container chooses it.
	Size *Quantity `json:"size,omitempty"`
	// ServiceAccountName is the service account of the container. Without one the container gets no API token.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// ImagePullSecrets are Secrets to pull the image with.
	//
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// Volumes that volumeMounts and volumeDevices name.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Volumes []ContainerPodVolume `json:"volumes,omitempty"`
}

// ContainerPodVolume is a volume of the pod that the container runs in.
type ContainerPodVolume struct {
	// Name is the name that volumeMounts and volumeDevices refer to.
	Name                  string                                    `json:"name"`
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
	EmptyDir              *corev1.EmptyDirVolumeSource              `json:"emptyDir,omitempty"`
	Secret                *corev1.SecretVolumeSource                `json:"secret,omitempty"`
	ConfigMap             *corev1.ConfigMapVolumeSource             `json:"configMap,omitempty"`
}

// Container returns the container itself, under the name it has in its pod.
func (s *ContainerSource) Container(name string) corev1.Container {
	s = s.DeepCopy()
	return corev1.Container{
		Name: name, Image: s.Image, Command: s.Command, Args: s.Args, WorkingDir: s.WorkingDir, Ports: s.Ports, EnvFrom: s.EnvFrom, Env: s.Env,
		Resources: s.Resources, VolumeMounts: s.VolumeMounts, VolumeDevices: s.VolumeDevices, LivenessProbe: s.LivenessProbe,
		ReadinessProbe: s.ReadinessProbe, StartupProbe: s.StartupProbe, TerminationMessagePath: s.TerminationMessagePath,
		TerminationMessagePolicy: s.TerminationMessagePolicy, ImagePullPolicy: s.ImagePullPolicy, SecurityContext: s.SecurityContext,
	}
}

// MadeSource is the disk that a container answers with. One field is set.
type MadeSource struct {
	NetworkSource `json:",inline"`
	PVC           *DiskClaim `json:"pvc,omitempty"`
}

// Volume returns the same source in a volume, as instances spell it.
func (s *MadeSource) Volume() VolumeSource {
	s = s.DeepCopy()
	v := VolumeSource{NetworkSource: s.NetworkSource}
	if s.PVC != nil {
		v.PersistentVolumeClaim = &ClaimSource{ClaimName: s.PVC.ClaimName}
	}
	return v
}
