package render

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/netdisk"
)

// mount is an object that a network disk refers to, and its path under the volume's directory.
type mount struct {
	name, dir string
	source    corev1.VolumeSource
}

// networkMounts are the Secrets and the ConfigMap that a network disk refers to, by name, in the machine's own namespace.
func networkMounts(v kubevirt.Volume) []mount {
	var out []mount
	for _, r := range netdisk.Refs(v.NetworkSource) {
		m := mount{fit(fmt.Sprintf("%s-secret-%d", v.Name, len(out))), r.Dir, secretSource(r.Secret, nil)}
		if r.ConfigMap != "" {
			m.name, m.source = fit(v.Name+"-ca"), corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: r.ConfigMap}, DefaultMode: ptr.To[int32](0o440)}}
		}
		out = append(out, m)
	}
	return out
}

// Open makes the volume one whose claim is not mounted.
func (m *Machine) Open(volume string, d netdisk.Direct) {
	if m.Direct == nil {
		m.Direct = map[string]netdisk.Direct{}
	}
	m.Direct[volume] = d
}

// LoginName is the name of the Secret that a disk's login is copied to for one run of a machine.
func LoginName(i *kubevirt.VirtualMachineInstance, volume string) string {
	uid := string(i.UID)
	return fit("disk-login-" + i.Name + "-" + volume + "-" + uid[:min(8, len(uid))])
}
