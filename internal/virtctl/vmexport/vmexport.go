// Package vmexport takes disks out of a cluster: it makes and deletes VirtualMachineExports, and downloads what they offer to a file
// or into another cluster. It does not know how a disk is read (internal/transfer) nor when an export is ready (the controller says so).
package vmexport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Options are the flags.
type Options struct {
	Name string
	// Source is the object to export; for a download, nil means that the export exists.
	Source      *corev1.TypedLocalObjectReference
	TTL         time.Duration
	Labels      map[string]string
	Annotations map[string]string

	Volume     string
	Format     export.Format // empty: what is quick to send
	Output     string        // a file; - is standard output
	Insecure   bool
	Keep       bool // the export stays after the download
	Delete     bool // ... or goes even if it was there before
	ServiceURL string
	// Direct connects to the server by the export's Service, which only pods of the cluster reach.
	Direct    bool
	LocalPort int
	Retries   int
	Wait      time.Duration
}

// run is one command.
type run struct {
	Options
	cluster *kube.Client
	out     io.Writer // what is said
	token   string    // that this command made; empty: it is in a Secret
}

func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, format+"\n", args...) // the terminal was closed
}

// errExists is about an export that is there already.
var errExists = errors.New("already exists")

// Create makes an export and its token.
func Create(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	return (&run{Options: o, cluster: c, out: out}).create(ctx)
}

func (r *run) create(ctx context.Context) error {
	secret := "secret-" + r.Name
	e := &export.VirtualMachineExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Namespace, Name: r.Name, Labels: r.Labels, Annotations: r.Annotations},
		Spec:       export.VirtualMachineExportSpec{Source: *r.Source, TokenSecretRef: &secret},
	}
	if r.TTL > 0 {
		e.Spec.TTLDuration = &metav1.Duration{Duration: r.TTL}
	}
	made, err := kube.Exports.Create(ctx, r.cluster, e)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("VirtualMachineExport '%s/%s' %w", r.cluster.Namespace, r.Name, errExists)
	}
	if err != nil {
		return err
	}
	owner := metav1.NewControllerRef(made, export.GroupVersion.WithKind("VirtualMachineExport"))
	owner.BlockOwnerDeletion = ptr.To(false) // which would need the right to change the export's finalizers
	token := rand.Text()
	_, err = r.cluster.Core.CoreV1().Secrets(r.cluster.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret, Labels: r.Labels, OwnerReferences: []metav1.OwnerReference{*owner}},
		Data:       map[string][]byte{export.TokenKey: []byte(token)},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		r.token = token // so that nobody needs the right to read Secrets for it
	case !apierrors.IsAlreadyExists(err): // one that is there is the user's own
		return fmt.Errorf("create the token of the export: %w", err)
	}
	r.say("VirtualMachineExport '%s/%s' created succesfully", r.cluster.Namespace, r.Name) //nolint:misspell // as upstream spells it
	return nil
}

// Delete deletes an export.
func Delete(ctx context.Context, c *kube.Client, name string, out io.Writer) error {
	return (&run{Options: Options{Name: name}, cluster: c, out: out}).remove(ctx)
}

func (r *run) remove(ctx context.Context) error {
	err := kube.Exports.Delete(ctx, r.cluster, r.Name, nil)
	switch {
	case apierrors.IsNotFound(err):
		r.say("VirtualMachineExport '%s/%s' does not exist", r.cluster.Namespace, r.Name)
		return nil
	case err != nil:
		return err
	}
	r.say("VirtualMachineExport '%s/%s' deleted succesfully", r.cluster.Namespace, r.Name) //nolint:misspell // as upstream spells it
	return nil
}

// within makes the export if it should be made, calls use, and deletes the export if it should be deleted.
func (r *run) within(ctx context.Context, use func() error) error {
	made := false
	if r.Source != nil {
		err := r.create(ctx)
		if err != nil && !errors.Is(err, errExists) {
			return err
		}
		made = err == nil // one that was there stays, unless the user says otherwise
	}
	err := use()
	if r.Delete || made && !r.Keep {
		// also after ctrl-c
		aside, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, r.remove(aside))
	}
	return err
}

// look is how often an export is checked until it is ready.
const look = time.Second

// ready waits until the export can be downloaded, and says what it waits for.
func (r *run) ready(ctx context.Context) (*export.VirtualMachineExport, error) {
	limit, cancel := context.WithTimeoutCause(ctx, r.Wait, errLate)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	said := ""
	for {
		e, err := kube.Exports.Get(limit, r.cluster, r.Name)
		if err != nil && limit.Err() == nil {
			return nil, err
		}
		text := fmt.Sprintf("waiting for VM Export %s status to be ready...", r.Name)
		if e == nil {
			text = fmt.Sprintf("couldn't get VM Export %s, waiting for it to be created...", r.Name)
		} else if e.Status != nil {
			if e.Status.Phase == export.Ready && e.Status.Links != nil && e.Status.Links.Internal != nil {
				return e, nil
			}
			for _, c := range e.Status.Conditions {
				if c.Type == export.ConditionReady {
					text += " " + c.Message
				}
			}
		}
		if err == nil && text != said {
			r.say("%s", text)
			said = text
		}
		select {
		case <-tick.C:
		case <-limit.Done():
			return nil, fmt.Errorf("%w: %s", context.Cause(limit), said)
		}
	}
}

var errLate = errors.New("the export was not ready in time")
