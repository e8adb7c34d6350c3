// Package uploadkeys gives each worker that waits for an upload the files by which it proves that it has its name and knows the
// upload proxy, renews them while it waits, and takes them away before the worker goes. It does not know how uploads are made.
package uploadkeys

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/render"
)

// Issuer makes the files by which an upload worker proves that it has a name, and knows the upload proxy.
type Issuer interface {
	Worker(ctx context.Context, name string) (map[string][]byte, error)
}

// renewEvery is how often a worker that waits for its upload gets new files. They are valid for some days.
const renewEvery = 24 * time.Hour

// Keys remembers when it issued what. After a restart it issues once more, which does no harm.
type Keys struct {
	issuer  Issuer
	cluster *cluster.Writer
	issued  sync.Map // when, by the UID of the claim
}

// New issues what issuer makes.
func New(issuer Issuer, writer *cluster.Writer) *Keys { return &Keys{issuer: issuer, cluster: writer} }

// Worker is one that waits for an upload.
type Worker struct {
	Namespace, Name string
	Claim           types.UID
	Owner           metav1.OwnerReference
	Now             time.Time
}

// Issue gives a worker its files, in a Secret of its own name: before there is a worker, so that one that exists
// always has them.
func (k *Keys) Issue(ctx context.Context, w Worker) error {
	data, err := k.issuer.Worker(ctx, render.UploadServer(w.Namespace, w.Name))
	if err != nil {
		return err
	}
	if err := k.cluster.Replace(ctx, w.secret(data)); err != nil {
		return err
	}
	k.issued.Store(w.Claim, w.Now)
	return nil
}

// Renew gives a worker that has waited long new files, which it reads by itself.
func (k *Keys) Renew(ctx context.Context, w Worker, made metav1.Time) error {
	if w.Now.Sub(k.since(w.Claim, made)) < renewEvery {
		return nil
	}
	return k.Issue(ctx, w)
}

func (k *Keys) since(claim types.UID, made metav1.Time) time.Time {
	if at, ok := k.issued.Load(claim); ok && at.(time.Time).After(made.Time) {
		return at.(time.Time)
	}
	return made.Time
}

// Revoke removes the files, before the worker: as long as that is there, they are remembered.
func (k *Keys) Revoke(ctx context.Context, w Worker) error {
	k.issued.Delete(w.Claim)
	return k.cluster.Delete(ctx, w.secret(nil))
}

func (w Worker) secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: w.Name, Labels: render.Labels(render.RoleUpload), OwnerReferences: []metav1.OwnerReference{w.Owner},
		},
		Type: corev1.SecretTypeTLS, Data: data,
	}
}
