// Package installkeys keeps the installation's own keys, each in a Secret of the namespace it is installed in: the certificate
// that the API server trusts our webhooks by, made and rotated by open-policy-agent/cert-controller, and the key that
// clone tokens are authenticated with.
//
// It does not know what the webhooks check nor what the tokens grant.
package installkeys

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

// ServingSecret holds the certificate authority and the serving certificate.
const ServingSecret = "berth-serving-certificate" //nolint:gosec // G101: the name of a Secret, not a secret

// Options say whose certificates are made.
type Options struct {
	Namespace string
	Services  []string // names of the Services, in Namespace, that lead to this process
	// Dir is a directory that this process may write to. Only the public certificate is put there, because the library
	// takes a file for the sign that a certificate has arrived.
	Dir string
	// The objects that get the authority to trust, by name.
	Validating, Mutating, APIServices []string
}

// Serving is the certificate this process serves with. It changes under way when the certificate is rotated.
type Serving struct {
	current atomic.Pointer[tls.Certificate]
	ready   chan struct{}
	dir     string
	log     logr.Logger
}

var errNoCertificate = errors.New("there is no serving certificate yet")

// GetCertificate is for tls.Config. Until the first certificate is there, a connection is refused.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// Ready is closed once there is a certificate and everything named in the options trusts it.
func (s *Serving) Ready() <-chan struct{} { return s.ready }

// NewServing returns a certificate that Start is to fill. Its GetCertificate can be given to a server at once.
func NewServing() *Serving {
	return &Serving{ready: make(chan struct{}), log: ctrl.Log.WithName("keys")}
}

// Start has the certificate made, kept and rotated as long as the manager runs, on every replica: any of them may
// answer the API server. It makes the Secret if it is not there.
func (s *Serving) Start(ctx context.Context, mgr ctrl.Manager, w *cluster.Writer, o Options) error {
	if len(o.Services) == 0 {
		return errors.New("set up the serving certificate: no Service named")
	}
	s.dir = o.Dir
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: ServingSecret}}
	if err := w.Create(ctx, secret); err != nil {
		return err
	}
	if err := s.follow(ctx, mgr, o.Namespace); err != nil {
		return err
	}
	names := dnsNames(o)
	r := &rotator.CertRotator{
		SecretKey:      types.NamespacedName{Namespace: o.Namespace, Name: ServingSecret},
		CertDir:        o.Dir,
		CAName:         "berth-ca",
		CAOrganization: "berth",
		DNSName:        names[0],
		ExtraDNSNames:  names[1:],
		IsReady:        s.ready,
		FieldOwner:     string(cluster.Owner),
		ControllerName: "serving-certificate",
	}
	for kind, of := range map[rotator.WebhookType][]string{
		rotator.Validating: o.Validating, rotator.Mutating: o.Mutating, rotator.APIService: o.APIServices,
	} {
		for _, name := range of {
			r.Webhooks = append(r.Webhooks, rotator.WebhookInfo{Type: kind, Name: name})
		}
	}
	if err := rotator.AddRotator(mgr, r); err != nil {
		return fmt.Errorf("set up the rotation of the serving certificate: %w", err)
	}
	return nil
}

func dnsNames(o Options) []string {
	var out []string
	for _, service := range o.Services {
		full := service + "." + o.Namespace + ".svc"
		out = append(out, full, full+".cluster.local")
	}
	return out
}

// follow takes every certificate the Secret gets. It has a cache of its own, of this one object, so that the manager
// need not be allowed to watch Secrets anywhere else.
func (s *Serving) follow(ctx context.Context, mgr ctrl.Manager, namespace string) error {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{namespace: {}},
			Field:      fields.OneTermEqualSelector(metav1.ObjectNameField, ServingSecret),
		}},
	})
	if err != nil {
		return fmt.Errorf("set up the watch of secret %s/%s: %w", namespace, ServingSecret, err)
	}
	informer, err := c.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", namespace, ServingSecret, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.take,
		UpdateFunc: func(_, now any) { s.take(now) },
	})
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", namespace, ServingSecret, err)
	}
	if err := mgr.Add(everywhere{c}); err != nil {
		return fmt.Errorf("add the watch of secret %s/%s: %w", namespace, ServingSecret, err)
	}
	return nil
}

// everywhere runs a cache on every replica, not only on the leader.
type everywhere struct{ cache.Cache }

func (everywhere) NeedLeaderElection() bool { return false }

func (s *Serving) take(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data[corev1.TLSCertKey]) == 0 {
		return // not filled yet
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		s.log.Error(err, "the serving certificate cannot be used; the rotator will replace it", "secret", secret.Name)
		return
	}
	s.current.Store(&pair)
	if err := os.WriteFile(filepath.Join(s.dir, corev1.TLSCertKey), secret.Data[corev1.TLSCertKey], 0o644); err != nil {
		s.log.Error(err, "write the public certificate")
	}
}
