//go:build e2e

package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMachineVolumes: a machine with a volume of every kind that is not a plain claim. The guest finds each of them, what it
// writes to an ephemeral one stays away from the claim, and it is ready when its own web server answers.
func TestMachineVolumes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.volume("base", "local")
	meta := metav1.ObjectMeta{Namespace: y.Namespace, Name: "settings"}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "value"}},
		&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"userdata": "#berth-guest\nsay hello\n"}},
	} {
		if err := y.kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	settings := corev1.LocalObjectReference{Name: "settings"}
	vm := y.tiny("kinds")
	bootKernel(vm, "disks")
	spec := &vm.Spec.Template.Spec
	for serial, source := range map[string]kubevirt.VolumeSource{
		"image":     {ContainerDisk: &kubevirt.ContainerDiskSource{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}},
		"empty":     {EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("16Mi")}},
		"ephemeral": {Ephemeral: &kubevirt.EphemeralSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "base"}}},
		"config":    {ConfigMap: &kubevirt.ConfigMapVolumeSource{LocalObjectReference: settings, VolumeLabel: "CONFIG"}},
		"secret":    {Secret: &kubevirt.SecretVolumeSource{SecretName: settings.Name, VolumeLabel: "SECRET"}},
		"drive":     {CloudInitConfigDrive: &kubevirt.CloudInitSource{UserDataSecretRef: &settings}},
	} {
		spec.Volumes = append(spec.Volumes, kubevirt.Volume{Name: serial, VolumeSource: source})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirt.Disk{Name: serial, Serial: serial})
	}
	spec.ReadinessProbe = &kubevirt.Probe{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}, PeriodSeconds: 1, FailureThreshold: 1}
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")

	y.guestSays(vm, fmt.Sprintf("serial=image size=%d", testguest.DiskSize))
	y.guestSays(vm, "serial=empty size=16777216")
	y.guestSays(vm, "label=config-2 type=iso9660")
	y.guestSays(vm, "user-data| say hello")
	for serial, label := range map[string]string{"config": "CONFIG", "secret": "SECRET"} {
		y.typeLine(vm, "read serial="+serial+" 32808 6") // where an ISO 9660 disk has its label
		y.guestSays(vm, "read serial="+serial+" 32808 6: "+hex.EncodeToString([]byte(label)))
	}
	y.typeLine(vm, "write serial=ephemeral 0 65536 7")
	y.guestSays(vm, "write serial=ephemeral 0 65536 7: ")
	_, launchers := y.pods(t.Context(), vm)
	out := y.Run(framework.Pod{Name: "look", Node: launchers[0].Spec.NodeName, Claims: []string{"base"}, User: guest,
		Script: `head -c 65536 /base/disk.img | tr -d '\0' | wc -c`})
	if out != "0\n" {
		t.Errorf("the guest's writes to an ephemeral volume are in the claim: %q", out)
	}
	y.Wait("the guest's web server to answer the readiness probe", boot, func(ctx context.Context) (bool, string) {
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && vm.Status.Ready, why(vm)
	})
}
