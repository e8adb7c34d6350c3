package status

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Seen is a machine with the objects that belong to it, read once.
type Seen struct {
	Machine  *kubevirt.VirtualMachine
	Instance *kubevirt.VirtualMachineInstance // nil: the machine is not started
	Disks    []Disk
	Pods     []corev1.Pod // of the namespace
	Backups  Backups      // of the namespace
}

// Disk is one volume of the machine that is in a claim.
type Disk struct {
	kube.Disk
	Volume *cdiv1.DataVolume // nil: the claim is no DataVolume's
	PVC    *corev1.PersistentVolumeClaim
	PV     *corev1.PersistentVolume // nil: not bound, or not the user's to read
}

// Read reads a machine of the client's namespace.
func Read(ctx context.Context, c *kube.Client, name string) (*Seen, error) {
	s := &Seen{}
	var err error
	if s.Machine, err = kube.Machines.Get(ctx, c, name); err != nil {
		return nil, err
	}
	if s.Machine == nil {
		return nil, fmt.Errorf("there is no VM %s/%s", c.Namespace, name)
	}
	if s.Instance, err = kube.Instances.Get(ctx, c, name); err != nil {
		return nil, err
	}
	pods, err := c.Core.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	s.Pods = pods.Items
	for _, v := range kube.Disks(s.Machine, s.Instance) {
		d := Disk{Disk: v}
		if err := d.read(ctx, c); err != nil {
			return nil, err
		}
		s.Disks = append(s.Disks, d)
	}
	s.Backups, err = readBackups(ctx, c)
	return s, err
}

func (d *Disk) read(ctx context.Context, c *kube.Client) error {
	var err error
	if d.Volume, err = kube.DataVolumes.Get(ctx, c, d.Claim); err != nil {
		return err
	}
	d.PVC, err = c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, d.Claim, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		d.PVC = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read PVC %s: %w", d.Claim, err)
	}
	if d.PVC.Spec.VolumeName == "" {
		return nil
	}
	volume, err := c.Core.CoreV1().PersistentVolumes().Get(ctx, d.PVC.Spec.VolumeName, metav1.GetOptions{})
	if err == nil { // volumes belong to the cluster, and many users may not read them
		d.PV = volume
	}
	return nil
}
