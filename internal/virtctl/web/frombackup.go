package web

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	backup "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	restoring "github.com/berth-vm/berth/internal/virtctl/restore"
)

// fromBackup makes a machine of a backup beside the one that was backed up, as virtctl vm restore does.
func fromBackup(ctx context.Context, c *kube.Client, machine, name string) (string, error) {
	b, err := kube.Backups.Get(ctx, c, name)
	if err != nil {
		return "", err
	}
	if b == nil || b.Status == nil || b.Status.CheckpointName == nil || b.Spec.Pulled() || !meta.IsStatusConditionTrue(b.Status.Conditions, backup.ConditionComplete) {
		return "", fmt.Errorf("there is no complete backup %.253q in a claim", name)
	}
	o := restoring.Options{Name: machine, From: b.Spec.Claim() + "/" + machine, At: *b.Status.CheckpointName, Wait: 2 * time.Minute}
	o.As = machine + "-" + o.At
	return "Machine " + o.As + " is made, stopped.", restoring.Run(ctx, c, o, io.Discard)
}
