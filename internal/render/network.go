package render

import (
	"fmt"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
)

// mount is something a network disk refers to, and where it is under the volume's directory.
type mount struct {
	name, dir string
	source    corev1.VolumeSource
}

// networkMounts are the Secrets and the ConfigMap that a network disk refers to, by name, in the machine's own namespace.
func networkMounts(v kubevirt.Volume) []mount {
	var out []mount
	secret := func(dir string, ref *corev1.LocalObjectReference) {
		if ref != nil && ref.Name != "" {
			out = append(out, mount{fit(fmt.Sprintf("%s-secret-%d", v.Name, len(out))), dir, secretSource(ref.Name, nil)})
		}
	}
	switch s := v.VolumeSource; {
	case s.ISCSI != nil:
		secret(launch.CredentialsMount, s.ISCSI.SecretRef)
	case s.RBD != nil:
		secret(launch.CredentialsMount, s.RBD.SecretRef)
	case s.NBD != nil && s.NBD.TLS != nil:
		secret(launch.CredentialsMount, &s.NBD.TLS.SecretRef)
	case s.HTTP != nil:
		secret(launch.CredentialsMount, s.HTTP.SecretRef)
		for i := range s.HTTP.SecretHeaders {
			secret(path.Join(launch.HeadersMount, strconv.Itoa(i)), &s.HTTP.SecretHeaders[i])
		}
		if s.HTTP.CertConfigMap != "" {
			out = append(out, mount{fit(v.Name + "-ca"), launch.CAMount, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: s.HTTP.CertConfigMap}, DefaultMode: ptr.To[int32](0o440)}}})
		}
	}
	return out
}

// Open makes the volume one whose claim is not mounted.
func (m *Machine) Open(volume string, d launch.Direct) {
	if m.Direct == nil {
		m.Direct = map[string]launch.Direct{}
	}
	m.Direct[volume] = d
}

// LoginName is the name of the Secret that a disk's login is copied to for one run of a machine.
func LoginName(i *kubevirt.VirtualMachineInstance, volume string) string {
	uid := string(i.UID)
	return fit("disk-login-" + i.Name + "-" + volume + "-" + uid[:min(8, len(uid))])
}
