//go:build e2e

package machine

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
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMachineVolumes: a machine with a volume of every kind that is not a plain claim. The guest finds each of them, what it
// writes to an ephemeral one stays away from the claim, and it is ready when its own web server answers.
func TestMachineVolumes(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.CreateBlankVolume("base", "local")
	meta := metav1.ObjectMeta{Namespace: y.Namespace, Name: "settings"}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "value"}},
		&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"userdata": "#berth-guest\nsay hello\n"}},
	} {
		if err := y.Kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	settings := corev1.LocalObjectReference{Name: "settings"}
	vm := y.TinyMachine("kinds")
	fixture.BootKernel(vm, "disks")
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
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")

	y.GuestSays(vm, fmt.Sprintf("serial=image size=%d", testguest.DiskSize))
	y.GuestSays(vm, "serial=empty size=16777216")
	y.GuestSays(vm, "label=config-2 type=iso9660")
	y.GuestSays(vm, "user-data| say hello")
	for serial, label := range map[string]string{"config": "CONFIG", "secret": "SECRET"} {
		y.TypeLine(vm, "read serial="+serial+" 32808 6") // where an ISO 9660 disk has its label
		y.GuestSays(vm, "read serial="+serial+" 32808 6: "+hex.EncodeToString([]byte(label)))
	}
	y.TypeLine(vm, "write serial=ephemeral 0 65536 7")
	y.GuestSays(vm, "write serial=ephemeral 0 65536 7: ")
	_, launchers := y.PodsOf(t.Context(), vm)
	out := y.Run(framework.Pod{Name: "look", Node: launchers[0].Spec.NodeName, Claims: []string{"base"}, User: fixture.GuestUser,
		Script: `head -c 65536 /base/disk.img | tr -d '\0' | wc -c`})
	if out != "0\n" {
		t.Errorf("the guest's writes to an ephemeral volume are in the claim: %q", out)
	}
	y.Wait("the guest's web server to answer the readiness probe", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && vm.Status.Ready, fixture.ReadyMessage(vm)
	})
}
