// Package backup has a machine backed up: it makes one VirtualMachineBackup, with the rights of the caller, and tells what it says until it has ended. It does
// not know how the bytes get there.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Options are the flags and arguments of the command.
type Options struct {
	Machine     string
	Claim       string
	Name        string // of the backup; "": the API server gives it one that begins with the machine's
	Tracker     string // a tracker of the machine; "": all data is written
	Full        bool   // all data is written, whatever was recorded
	SkipQuiesce bool
	Wait        bool
}

// look is how often the backup is read.
const look = time.Second

// Run makes the backup, tells out what it says whenever that changes, and returns it as it ended. One that failed is an error.
func Run(ctx context.Context, c *kube.Client, o Options, out io.Writer) (*backupv1.VirtualMachineBackup, error) {
	if err := o.check(ctx, c); err != nil {
		return nil, err
	}
	b, err := kube.Backups.Create(ctx, c, o.object())
	if err != nil {
		return nil, err
	}
	if !o.Wait {
		_, err := fmt.Fprintf(out, "Backup %s of VM %s is made in PersistentVolumeClaim %s\n", b.Name, o.Machine, o.Claim)
		return b, err
	}
	return await(ctx, c, b, out)
}

// check refuses what would be waited for without end.
func (o Options) check(ctx context.Context, c *kube.Client) error {
	vm, err := kube.Machines.Get(ctx, c, o.Machine)
	if err != nil {
		return err
	}
	if vm == nil {
		return fmt.Errorf("there is no VM %s/%s", c.Namespace, o.Machine)
	}
	if _, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, o.Claim, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("read PVC %s: %w", o.Claim, err)
	}
	if o.Tracker == "" {
		return nil
	}
	t, err := kube.Trackers.Get(ctx, c, o.Tracker)
	switch {
	case err != nil:
		return err
	case t == nil:
		return fmt.Errorf("there is no VirtualMachineBackupTracker %s/%s", c.Namespace, o.Tracker)
	case t.Spec.Source.Name != o.Machine:
		return fmt.Errorf("VirtualMachineBackupTracker %s is of VM %s", o.Tracker, t.Spec.Source.Name)
	}
	return nil
}

func (o Options) object() *backupv1.VirtualMachineBackup {
	b := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	if o.Name == "" {
		b.GenerateName = o.Machine + "-"
	}
	b.Spec = backupv1.VirtualMachineBackupSpec{PvcName: &o.Claim, ForceFullBackup: o.Full, SkipQuiesce: o.SkipQuiesce,
		Source: corev1.TypedLocalObjectReference{APIGroup: ptr.To(kubevirt.GroupVersion.Group), Kind: backupv1.Machine, Name: o.Machine}}
	if o.Tracker != "" {
		b.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: ptr.To(backupv1.GroupVersion.Group), Kind: backupv1.Tracker, Name: o.Tracker}
	}
	return b
}

// await waits for the end of a backup. It goes on if the command is interrupted.
func await(ctx context.Context, c *kube.Client, b *backupv1.VirtualMachineBackup, out io.Writer) (*backupv1.VirtualMachineBackup, error) {
	last, name := "", b.Name
	err := wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
		now, err := kube.Backups.Get(ctx, c, name)
		if err != nil {
			return false, err
		}
		if now == nil || now.UID != b.UID {
			return false, fmt.Errorf("backup %s was deleted", name)
		}
		b = now
		if text := Says(b); text != "" && text != last {
			last = text
			fmt.Fprintf(out, "%s: %s\n", name, text)
		}
		return b.Over(), nil
	})
	if ctx.Err() != nil {
		return b, fmt.Errorf("backup %s goes on; kubectl get vmbackup %s shows it: %w", name, name, ctx.Err())
	}
	if err != nil {
		return b, err
	}
	if failed := b.Condition(backupv1.ConditionFailed); failed != nil && failed.Status == metav1.ConditionTrue {
		return b, errors.New(failed.Message)
	}
	return b, nil
}

// Says is the message of the condition that is true: how far a backup is, or how it ended.
func Says(b *backupv1.VirtualMachineBackup) string {
	for _, kind := range []string{backupv1.ConditionComplete, backupv1.ConditionFailed, backupv1.ConditionProgressing} {
		if c := b.Condition(kind); c != nil && c.Status == metav1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}
