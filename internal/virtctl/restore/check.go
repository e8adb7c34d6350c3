package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/pkg/claim"
)

// check refuses what the cluster would refuse later, before anything is made: rights, names, classes, quotas, and what admission says.
func check(ctx context.Context, c *kube.Client, p *plan) error {
	for _, look := range []func(context.Context, *kube.Client, *plan) error{checkRights, checkNames, checkClasses, checkQuotas} {
		if err := look(ctx, c, p); err != nil {
			return err
		}
	}
	if err := kube.Machines.Check(ctx, c, p.machine); err != nil {
		return err
	}
	for _, d := range p.disks {
		if err := kube.BackupSources.Check(ctx, c, d.source); err != nil {
			return err
		}
	}
	return nil
}

// checkRights asks whether the user may make everything.
func checkRights(ctx context.Context, c *kube.Client, p *plan) error {
	wanted := []authorizationv1.ResourceAttributes{
		{Group: "kubevirt.io", Resource: "virtualmachines"}, {Group: "cdi.kubevirt.io", Resource: "datavolumes"}, {Group: "berth.dev", Resource: "volumebackupsources"},
	}
	if p.aids != nil {
		wanted = append(wanted, authorizationv1.ResourceAttributes{Resource: "secrets"}, authorizationv1.ResourceAttributes{Resource: "configmaps"})
	}
	var lacks []string
	for _, w := range wanted {
		w.Namespace, w.Verb = c.Namespace, "create"
		review, err := c.Core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &w}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask what you may do in namespace %s: %w", c.Namespace, err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, w.Resource)
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("you may not create %s in namespace %s", strings.Join(lacks, ", "), c.Namespace)
	}
	return nil
}

// checkNames refuses to make what is there.
func checkNames(ctx context.Context, c *kube.Client, p *plan) error {
	vm, err := kube.Machines.Get(ctx, c, p.machine.Name)
	if err != nil {
		return err
	}
	if vm != nil {
		return fmt.Errorf("there is a VirtualMachine %s already: choose another name with --as, or another namespace", p.machine.Name)
	}
	for _, d := range p.disks {
		volume, err := kube.DataVolumes.Get(ctx, c, d.name)
		if err != nil {
			return err
		}
		made, err := kube.BackupSources.Get(ctx, c, d.name)
		if err != nil {
			return err
		}
		_, err = c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, d.name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read claim %s: %w", d.name, err)
		}
		if volume != nil || made != nil || err == nil {
			return fmt.Errorf("there is a DataVolume, a claim or a VolumeBackupSource %s already: choose another name with --as, or another namespace", d.name)
		}
	}
	return nil
}

// checkClasses finds the class of every disk, and notes the default one.
func checkClasses(ctx context.Context, c *kube.Client, p *plan) error {
	list, err := c.Core.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list storage classes: %w", err)
	}
	for i := range p.disks {
		d := &p.disks[i]
		if d.class == "" {
			class := claim.DefaultVirtClass(list.Items)
			if class == nil {
				class = claim.DefaultClass(list.Items)
			}
			if class == nil {
				return fmt.Errorf("disk %s names no storage class, and none is the default: choose one with --storage-class", d.volume)
			}
			d.class = class.Name
		}
		if !slices.ContainsFunc(list.Items, func(s storagev1.StorageClass) bool { return s.Name == d.class }) {
			return fmt.Errorf("there is no storage class %s, which disk %s had: choose another with --storage-class", d.class, d.volume)
		}
		if p.early {
			profile, err := kube.Profiles.Get(ctx, c, d.class)
			if err != nil {
				return err
			}
			preferFiles(p.machine.Spec.DataVolumeTemplates[i].Spec.Storage, profile)
		}
	}
	return nil
}

// preferFiles has a disk whose mode the machine leaves open be a file, if its class has such claims: a machine cannot start with a Block claim before it is full.
func preferFiles(s *cdiv1.StorageSpec, profile *cdiv1.StorageProfile) {
	if s.VolumeMode != nil || len(s.AccessModes) > 0 || profile == nil {
		return
	}
	for _, set := range profile.Status.ClaimPropertySets {
		if ptr.Deref(set.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeFilesystem {
			s.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
			return
		}
	}
}

// checkQuotas adds up what the disks will ask for. Who may not read the quotas learns of them when a disk is made.
func checkQuotas(ctx context.Context, c *kube.Client, p *plan) error {
	quotas, err := c.Core.CoreV1().ResourceQuotas(c.Namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list quotas: %w", err)
	}
	asked := demand(p.disks)
	var over []error
	for i := range quotas.Items {
		q := &quotas.Items[i]
		for name, want := range asked {
			hard, limited := q.Status.Hard[name]
			used := q.Status.Used[name]
			used.Add(want)
			if limited && used.Cmp(hard) > 0 {
				over = append(over, fmt.Errorf("quota %s allows %s of %s, %s with the disks", q.Name, hard.String(), name, used.String()))
			}
		}
	}
	return errors.Join(over...)
}

// demand is what the disks take of quotas, at least.
func demand(disks []restored) corev1.ResourceList {
	out := corev1.ResourceList{}
	add := func(name corev1.ResourceName, n int64, format resource.Format) {
		q := out[name]
		q.Add(*resource.NewQuantity(n, format))
		out[name] = q
	}
	for _, d := range disks {
		of := corev1.ResourceName(d.class + ".storageclass.storage.k8s.io/")
		for _, prefix := range []corev1.ResourceName{"", of} {
			add(prefix+corev1.ResourceRequestsStorage, d.size, resource.BinarySI)
			add(prefix+corev1.ResourcePersistentVolumeClaims, 1, resource.DecimalSI)
		}
		add("count/datavolumes.cdi.kubevirt.io", 1, resource.DecimalSI)
		add("count/volumebackupsources.berth.dev", 1, resource.DecimalSI)
	}
	add("count/virtualmachines.kubevirt.io", 1, resource.DecimalSI)
	return out
}
