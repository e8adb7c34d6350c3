package imageupload

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/bind"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Annotations of claims that clients of cdi.kubevirt.io write or read.
const (
	annUpload   = claimorder.Upload
	annContent  = names.ContentType
	annPhase    = names.PodPhase
	annReady    = names.PodReady
	annPopulate = names.PopulatedFor
	annMessage  = names.RunMessage
	annState    = names.State
)

// upload is one run of the command.
type upload struct {
	Options
	cluster *kube.Client
	out     io.Writer
	place   *bind.Place // nil: a held claim is not to be bound
}

// Run carries out an upload with options that Check has accepted. It can be repeated after any failure and continues where it stopped.
func Run(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	u := &upload{Options: o, cluster: c, out: out}
	if err := u.findPlace(ctx); err != nil {
		return err
	}
	if err := u.ensure(ctx); err != nil {
		return err
	}
	if err := u.ready(ctx); err != nil {
		return err
	}
	door, err := u.door(ctx)
	if err != nil {
		return err
	}
	if err := u.send(ctx, door); err != nil {
		return err
	}
	if err := u.processed(ctx); err != nil {
		return err
	}
	u.say("Uploading %s completed successfully", u.path())
	if u.DataSource {
		return u.dataSource(ctx)
	}
	return nil
}

func (u *upload) say(format string, args ...any) {
	_, _ = fmt.Fprintf(u.out, format+"\n", args...) // the terminal was closed
}

func (u *upload) findPlace(ctx context.Context) error {
	place, err := bind.Place{}, error(nil)
	switch {
	case u.Node != "":
		place, err = bind.OnNode(ctx, u.cluster, u.Node)
	case u.LikeVM != "":
		place, err = bind.LikeVM(ctx, u.cluster, u.LikeVM)
	case !u.ForceBind:
		return nil
	}
	u.place = &place
	return err
}

// claim reads the claim; nil means that there is none.
func (u *upload) claim(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
	claim, err := u.cluster.Core.CoreV1().PersistentVolumeClaims(u.cluster.Namespace).Get(ctx, u.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %s: %w", u.Name, err)
	}
	return claim, nil
}
