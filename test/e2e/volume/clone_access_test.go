//go:build e2e

package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// slowClone is a yard with a claim on one node that is being cloned to another, slowly.
type slowClone struct {
	*fixture.Machines
	block  bool
	home   string      // the node of the source
	server *corev1.Pod // of the source
}

// newSlowClone begins to clone claim golden to volume copy.
func newSlowClone(t *testing.T, block bool) *slowClone {
	t.Helper()
	s := &slowClone{Machines: fixture.NewMachines(t), block: block}
	nodes := s.ReadyNodes()
	s.home = nodes[0]
	class, mode := fixture.ClassWaits, corev1.PersistentVolumeFilesystem
	if block {
		class, mode = fixture.ClassDisk, corev1.PersistentVolumeBlock
	}
	s.Create(framework.Claim{Name: "golden", Class: class, Size: "40Mi", Block: block})
	s.Run(framework.Pod{Name: "fill", Claims: []string{"golden"}, Node: s.home, User: fixture.GuestUser,
		Script: "head -c 25165824 /dev/urandom > " + s.path("golden")})
	copied := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "copy"}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: s.Namespace, Name: "golden"}},
		PVC: &corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeMode: &mode, Resources: fixture.StorageRequest("48Mi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
	if err := s.Kube.Create(s.Context(), copied); err != nil {
		t.Fatal(err)
	}
	s.Wait("the clone to wait for its consumer", fixture.Patience, func(ctx context.Context) (bool, string) {
		said := s.copied(ctx)
		return strings.HasPrefix(said, string(cdiv1.WaitForFirstConsumer)), said
	})
	s.Start(framework.Pod{Name: "consumer", Script: "sleep 3600", Claims: []string{"copy"}, Node: nodes[1], User: fixture.GuestUser})
	s.Wait("the source to be served", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		err := s.Kube.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingLabels{"cdi.kubevirt.io": "cdi-clone-source"})
		if err != nil || len(pods.Items) == 0 || pods.Items[0].Spec.NodeName == "" {
			return false, fmt.Sprint(s.copied(ctx), err)
		}
		s.server = &pods.Items[0]
		return true, ""
	})
	s.Pace(s.server, 1<<20)
	s.Wait("the clone to be under way", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		said := s.copied(ctx)
		return strings.HasPrefix(said, string(cdiv1.CloneInProgress)), said
	})
	return s
}

// path is where a pod of a test finds the disk of a claim.
func (s *slowClone) path(claim string) string {
	if s.block {
		return "/dev/" + claim
	}
	return "/" + claim + "/disk.img"
}

// copied returns the condition of the clone.
func (s *slowClone) copied(ctx context.Context) string {
	var dv cdiv1.DataVolume
	if err := s.Kube.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "copy"}, &dv); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s: %s", dv.Status.Phase, fixture.ConditionOf(&dv, cdiv1.DataVolumeReady).Reason, fixture.ReadyMessageOf(&dv))
}

// same fails the test unless the clone is as the source is now.
func (s *slowClone) same() {
	s.T.Helper()
	s.Wait("the clone to be complete", 2*fixture.BootPatience, func(ctx context.Context) (bool, string) {
		said := s.copied(ctx)
		return strings.HasPrefix(said, string(cdiv1.Succeeded)), said
	})
	s.Delete("consumer")
	sums := map[string]string{}
	for _, claim := range []string{"golden", "copy"} {
		sums[claim] = s.Run(framework.Pod{Name: "read-" + claim, Claims: []string{claim}, User: fixture.GuestUser,
			Script: "head -c 25165824 " + s.path(claim) + " | sha256sum"})
	}
	if sums["golden"] != sums["copy"] || sums["copy"] == "" {
		s.T.Errorf("the source is %s and the clone %s", sums["golden"], sums["copy"])
	}
}

// TestCloneOfADiskThatIsWanted: who starts to use the source of a clone while it is copied does not make a torn clone. A machine waits and says
// for what; a clone whose source a pod wrote to meanwhile says so, and is made again.
func TestCloneOfADiskThatIsWanted(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]bool{"Filesystem": false, "Block": true} {
		t.Run("a machine, "+name, func(t *testing.T) {
			t.Parallel()
			s := newSlowClone(t, block)
			vm := s.TinyMachine("vm")
			vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "disk", VolumeSource: kubevirt.VolumeSource{
				PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "golden"}}}}
			vm.Spec.Template.Spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "disk"}}
			s.CreateMachine(vm)
			s.Wait("the machine to say what it waits for", fixture.BootPatience, func(ctx context.Context) (bool, string) {
				err := s.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
				return err == nil && strings.Contains(fixture.ReadyMessage(vm), "reads it to make a clone"), fixture.ReadyMessage(vm)
			})
			s.Stays("the machine waits for the clone", 5*time.Second, func(ctx context.Context) (bool, string) {
				err := s.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
				said := s.copied(ctx)
				over := strings.HasPrefix(said, string(cdiv1.Succeeded))
				return err == nil && (over || vm.Status.PrintableStatus != kubevirt.StatusRunning), fmt.Sprint(vm.Status.PrintableStatus, said)
			})
			s.Pace(s.server, 0)
			s.WaitStatus(vm, kubevirt.StatusRunning, 2*fixture.BootPatience)
			s.Wait("the clone to be complete", fixture.BootPatience, func(ctx context.Context) (bool, string) {
				said := s.copied(ctx)
				return strings.HasPrefix(said, string(cdiv1.Succeeded)), said
			})
		})
		t.Run("a pod, "+name, func(t *testing.T) {
			t.Parallel()
			s := newSlowClone(t, block)
			s.Start(framework.Pod{Name: "writer", Claims: []string{"golden"}, Node: s.home, User: fixture.GuestUser,
				Script: "for n in 0 8 16 23; do head -c 1048576 /dev/urandom | dd of=" + s.path("golden") + " bs=1M seek=$n conv=notrunc; done; sync; sleep 3600"})
			s.WaitRunning("writer")
			s.Wait("the clone to say that its source is in use, or to read a snapshot of it", fixture.BootPatience, func(ctx context.Context) (bool, string) {
				said := s.copied(ctx)
				return strings.Contains(said, string(state.SourceBusy)) && strings.Contains(said, "writer") || strings.Contains(said, "napshot"), said
			})
			s.Delete("writer")
			if block {
				return // what a snapshot has was written before or after the pod; that it is whole is its driver's to say
			}
			s.same()
		})
	}
}

// TestImportIntoTheDiskOfAMachine: what is ordered for a claim that a machine runs from waits until the machine has stopped, and says why.
func TestImportIntoTheDiskOfAMachine(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Create(framework.Claim{Name: "disk", Class: fixture.ClassDisk, Size: "64Mi", Block: true})
	vm := y.TinyMachine("vm")
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "disk", VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "disk"}}}}
	vm.Spec.Template.Spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "disk"}}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.Kubectl("annotate", "pvc", "disk", "cdi.kubevirt.io/storage.import.endpoint="+y.GuestURL)
	y.WaitEvent("disk", fixture.BootPatience, func(reason, message string) bool {
		return reason == string(state.ClaimInUse) && strings.Contains(message, "machine vm has it write-exclusive")
	})
	y.Stays("nothing is written under the guest", 5*time.Second, func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		err := y.Kube.List(ctx, &pods, client.InNamespace(y.Namespace), client.MatchingLabels{"app": "containerized-data-importer"})
		return err == nil && len(pods.Items) == 0, fmt.Sprint(len(pods.Items), err)
	})
	y.Kubectl("delete", "vm", vm.Name)
	y.Wait("the import to begin", 2*fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var c corev1.PersistentVolumeClaim
		err := y.Kube.Get(ctx, client.ObjectKey{Namespace: y.Namespace, Name: "disk"}, &c)
		return err == nil && c.Annotations["cdi.kubevirt.io/storage.pod.phase"] != "", fmt.Sprint(c.Annotations, err)
	})
}
