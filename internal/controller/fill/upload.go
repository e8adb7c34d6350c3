package fill

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/render"
)

// Issuer makes the files by which an upload worker proves that it bears a name, and knows the upload proxy.
type Issuer interface {
	Worker(ctx context.Context, name string) (map[string][]byte, error)
}

// renewEvery is how often a worker that waits for its upload gets new files. They hold for some days.
const renewEvery = 24 * time.Hour

// certificates remembers when it issued what. After a restart it issues once more, which does no harm.
type certificates struct {
	issuer Issuer
	issued sync.Map // when, by the UID of the claim
}

// issue gives an upload worker its files, in a Secret of its own name: before there is a worker, so that one that exists
// always has them.
func (e *Engine) issue(ctx context.Context, s *Seen, worker string) error {
	data, err := e.uploads.issuer.Worker(ctx, render.UploadServer(s.order.Namespace, worker))
	if err != nil {
		return err
	}
	if err := e.cluster.Replace(ctx, e.uploadSecret(s, worker, data)); err != nil {
		return err
	}
	e.uploads.issued.Store(s.claim.UID, s.now)
	return nil
}

// renew gives a worker that has waited long new files, which it reads by itself.
func (e *Engine) renew(ctx context.Context, s *Seen) error {
	if s.role() != render.RoleUpload || s.now.Sub(e.uploads.since(s.claim.UID, s.worker.CreationTimestamp)) < renewEvery {
		return nil
	}
	return e.issue(ctx, s, s.worker.Name)
}

func (c *certificates) since(claim types.UID, made metav1.Time) time.Time {
	if at, ok := c.issued.Load(claim); ok && at.(time.Time).After(made.Time) {
		return at.(time.Time)
	}
	return made.Time
}

// revoke removes the files, before the worker: as long as that is there, they are remembered.
func (e *Engine) revoke(ctx context.Context, s *Seen, worker string) error {
	e.uploads.issued.Delete(s.claim.UID)
	return e.cluster.Delete(ctx, e.uploadSecret(s, worker, nil))
}

func (e *Engine) uploadSecret(s *Seen, worker string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.order.Namespace, Name: worker, Labels: render.Labels(render.RoleUpload),
			OwnerReferences: []metav1.OwnerReference{s.order.Owner},
		},
		Type: corev1.SecretTypeTLS, Data: data,
	}
}
