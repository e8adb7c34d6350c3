// Package keep has a machine's copy of a disk written to a claim of its own, which it makes with the rights of the caller. It
// does not know how the bytes get there.
package keep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/bar"
	"github.com/berth-vm/berth/internal/virtctl/createpvc"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	request "github.com/berth-vm/berth/internal/virtctl/machine"
)

// Options are the flags and arguments of the command.
type Options struct {
	Machine string
	Disk    string
	// Claim describes the claim to create. Without a size it is just large enough for the disk.
	Claim createpvc.Options
	Wait  bool
}

// refusal is a machine or a disk that cannot be kept, and what to do.
type refusal struct {
	error
	advice string
}

// Advice returns what to do about it.
func (w *refusal) Advice() string { return w.advice }

// Run makes the claim, asks for the disk to be kept in it, and waits until it is.
func Run(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	i, err := kube.Instances.Get(ctx, c, o.Machine)
	if err != nil {
		return err
	}
	if i == nil {
		return &refusal{fmt.Errorf("virtual machine %s does not run", o.Machine),
			"Its copies are gone with its last run: a disk is kept while the machine runs."}
	}
	size, err := sizeOf(i, o.Disk)
	if err != nil {
		return err
	}
	if o.Claim.Size == "" {
		if size == 0 {
			return &refusal{fmt.Errorf("the size of disk %s is not known yet", o.Disk), "Try again in some seconds, or give --size."}
		}
		o.Claim.Size, o.Claim.SizeIsDisk = strconv.FormatInt(size, 10), true
	}
	if err := ensure(ctx, c, i, o, out); err != nil {
		return err
	}
	if err := request.Keep(ctx, c, o.Machine, kubevirt.KeepOptions{Name: o.Disk, ClaimName: o.Claim.Name}); err != nil {
		return err
	}
	if !o.Wait {
		_, err := fmt.Fprintf(out, "Disk %s of VM %s is being kept in PersistentVolumeClaim %s\n", o.Disk, o.Machine, o.Claim.Name)
		return err
	}
	return await(ctx, c, i, o, out)
}

// sizeOf returns the size of a copy; 0: it is not known yet.
func sizeOf(i *kubevirt.VirtualMachineInstance, disk string) (int64, error) {
	var copies []string
	for _, v := range i.Spec.Volumes {
		if v.Copied() != nil {
			copies = append(copies, v.Name)
		}
	}
	switch {
	case len(copies) == 0:
		return 0, &refusal{fmt.Errorf("virtual machine %s has no copies", i.Name),
			"Its disks are claims already, which stay when it is deleted: clone one with a DataVolume or virtctl create-pvc."}
	case !slices.Contains(copies, disk):
		return 0, &refusal{fmt.Errorf("disk %s of virtual machine %s is no copy", disk, i.Name), "Its copies are " + strings.Join(copies, ", ") + "."}
	}
	at := slices.IndexFunc(i.Status.VolumeStatus, func(v kubevirt.VolumeStatus) bool { return v.Name == disk })
	if at < 0 {
		return 0, nil
	}
	return i.Status.VolumeStatus[at].Size, nil
}

// ensure makes the claim. One that is there is taken if it was made for the same: the command may have been interrupted.
func ensure(ctx context.Context, c *kube.Client, i *kubevirt.VirtualMachineInstance, o Options, out io.Writer) error {
	from := string(i.UID) + "/" + o.Disk
	claims := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace)
	there, err := claims.Get(ctx, o.Claim.Name, metav1.GetOptions{})
	switch {
	case err == nil && there.Annotations[names.KeptFrom] == from:
		_, err = fmt.Fprintf(out, "Using existing PVC %s/%s\n", c.Namespace, o.Claim.Name)
		return err
	case err == nil:
		return &refusal{fmt.Errorf("PersistentVolumeClaim %s exists and was not made for this disk", o.Claim.Name), "Nothing is written over it: give another name with --as."}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read PersistentVolumeClaim %s: %w", o.Claim.Name, err)
	}
	pvc, filled, err := createpvc.Complete(ctx, c, o.Claim)
	if err != nil {
		return err
	}
	pvc.Annotations = map[string]string{names.KeptFrom: from}
	if _, err := claims.Create(ctx, pvc, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create PersistentVolumeClaim: %w", err)
	}
	lines := []string{fmt.Sprintf("PersistentVolumeClaim %s/%s created", c.Namespace, pvc.Name)}
	for _, why := range filled {
		lines = append(lines, "  "+why.String())
	}
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

const interval = 500 * time.Millisecond

// await draws the progress until the copy is done or has failed.
func await(ctx context.Context, c *kube.Client, run *kubevirt.VirtualMachineInstance, o Options, out io.Writer) error {
	line, drawn, said := bar.Percent(out), false, ""
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		done, err := look(ctx, c, run, o)
		if err != nil || done.over {
			return done.over, err
		}
		if done.progress > 0 {
			drawn = true
			line.Set(done.progress, 100)
		} else if done.text != said && done.text != "" {
			said = done.text
			_, _ = fmt.Fprintln(out, said)
		}
		return false, nil
	})
	if drawn {
		if err == nil {
			line.Set(100, 100)
		}
		line.End()
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "PersistentVolumeClaim %s has disk %s of VM %s\n", o.Claim.Name, o.Disk, o.Machine)
	return err
}

// progress is the progress of the copy.
type progress struct {
	over     bool
	progress int64 // in percent
	text     string
}

// look reads the progress. The record on the claim decides; the machine may be gone.
func look(ctx context.Context, c *kube.Client, run *kubevirt.VirtualMachineInstance, o Options) (progress, error) {
	pvc, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, o.Claim.Name, metav1.GetOptions{})
	if err != nil {
		return progress{}, fmt.Errorf("read PersistentVolumeClaim %s: %w", o.Claim.Name, err)
	}
	if pvc.Annotations[names.PodPhase] == string(corev1.PodSucceeded) {
		return progress{over: true}, nil
	}
	i, err := kube.Instances.Get(ctx, c, o.Machine)
	if err != nil {
		return progress{}, err
	}
	unusable := "PersistentVolumeClaim " + o.Claim.Name + " does not have it: delete it."
	if i == nil || i.UID != run.UID || i.Status.Phase == kubevirt.PhaseFailed || i.Status.Phase == kubevirt.PhaseSucceeded {
		return progress{}, &refusal{fmt.Errorf("virtual machine %s ended before its disk %s was kept", o.Machine, o.Disk), unusable}
	}
	for _, v := range i.Status.VolumeStatus {
		if v.Name != o.Disk || v.Copy == nil || v.Copy.Keep == nil || v.Copy.Keep.ClaimName != o.Claim.Name {
			continue
		}
		k := v.Copy.Keep
		switch k.Reason {
		case kubevirt.KeepFailed, kubevirt.KeepNotForIt, kubevirt.KeepClaimLeaving:
			return progress{}, &refusal{errors.New(k.Message), unusable}
		}
		done, _ := strconv.ParseInt(strings.TrimSuffix(k.Progress, "%"), 10, 64) // empty before it is being written
		return progress{progress: done, text: k.Message}, nil
	}
	return progress{}, nil
}
