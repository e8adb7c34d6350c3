package render

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// TestMakerPods: the pod of a container that makes a volume, with little and with all that can be said about it.
func TestMakerPods(t *testing.T) {
	for name, c := range map[string]kubevirt.ContainerSource{
		"least": {Image: "maker"},
		"most": {Image: "maker", Command: []string{"serve"}, Args: []string{"-v"}, ServiceAccountName: "maker",
			Ports:           []corev1.ContainerPort{{Name: "volume", ContainerPort: 8443}},
			Env:             []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}},
			SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To[int64](1000), ReadOnlyRootFilesystem: ptr.To(true)},
			VolumeMounts:    []corev1.VolumeMount{{Name: "luns", MountPath: "/data"}},
			Volumes: []kubevirt.ContainerPodVolume{{Name: "luns",
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "luns"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &accessv1.ContainerVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: MakerName("web", "vm-uid", "root"), UID: "record-uid"},
				Spec: accessv1.ContainerVolumeSpec{Machine: "web", MachineUID: "vm-uid", Volume: "root", Container: c}}
			pod := Maker{Record: r, Grace: 45}.Pod()
			text, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, "testdata/maker-"+name+".yaml", text)
			if why, err := Restricted(&c); err != nil || why != "" {
				t.Errorf("it may not be run: %s %v", why, err)
			}
			if token := *pod.Spec.AutomountServiceAccountToken; token != (c.ServiceAccountName != "") {
				t.Errorf("it has a token: %v", token)
			}
		})
	}
}

// TestMakerNames: neither another machine of the name nor a machine and a volume whose names run together share a record.
func TestMakerNames(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range []string{
		MakerName("a-b", "1", "c"), MakerName("a", "1", "b-c"), MakerName("a", "2", "b-c"), MakerName(strings.Repeat("m", 63), "1", "c"),
		MakerName(strings.Repeat("m", 63), "1", "d"),
	} {
		if seen[n] || len(n) > longestName {
			t.Errorf("%s is another's, or too long", n)
		}
		seen[n] = true
	}
}
