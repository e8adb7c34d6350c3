package v1

import corev1 "k8s.io/api/core/v1"

// ContainerImageSource is an ordinary container image as a machine: its layers are the root, and the machine runs its program.
type ContainerImageSource struct {
	// Image is the container image.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// ImagePullSecret is a Secret of type kubernetes.io/dockerconfigjson to pull the image with.
	ImagePullSecret string `json:"imagePullSecret,omitempty"`
	// CertConfigMap names a ConfigMap with certificates that are trusted for the registry in addition to the usual ones.
	CertConfigMap string `json:"certConfigMap,omitempty"`
	// Command is run instead of the image's entrypoint.
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args are given to the program instead of the image's.
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// Env is added to the image's environment.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	Env []EnvVar `json:"env,omitempty"`
	// EnvFrom are ConfigMaps and Secrets whose every key is set besides the image's environment; env goes first.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	EnvFrom []EnvFromSource `json:"envFrom,omitempty"`
	// WorkingDir instead of the image's.
	WorkingDir string `json:"workingDir,omitempty"`
}

// EnvVar is a variable of a program's environment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.value)",message="a variable has a value, or it comes from somewhere"
type EnvVar struct {
	// Name of the variable.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z][-._a-zA-Z0-9]*$`
	Name string `json:"name"`
	// Value of the variable, as it is.
	Value string `json:"value,omitempty"`
	// ValueFrom is the source of the value.
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvVarSource is a key of a ConfigMap or of a Secret.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef) != has(self.secretKeyRef)",message="exactly one of configMapKeyRef and secretKeyRef is required"
type EnvVarSource struct {
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`
	SecretKeyRef    *corev1.SecretKeySelector    `json:"secretKeyRef,omitempty"`
}

// EnvFromSource is a ConfigMap or a Secret whose keys are variables.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapRef) != has(self.secretRef)",message="exactly one of configMapRef and secretRef is required"
type EnvFromSource struct {
	// Prefix is put before every key.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([-._a-zA-Z][-._a-zA-Z0-9]*)?$`
	Prefix       string                     `json:"prefix,omitempty"`
	ConfigMapRef *corev1.ConfigMapEnvSource `json:"configMapRef,omitempty"`
	SecretRef    *corev1.SecretEnvSource    `json:"secretRef,omitempty"`
}
