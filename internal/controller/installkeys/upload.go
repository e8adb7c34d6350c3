package installkeys

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/token"
)

// The Secrets and the ConfigMap of uploads, in the namespace of the installation. Who needs one mounts it: the token's
// seeds the API server, the rest the proxy.
const (
	UploadAuthority   = "berth-upload-ca"
	UploadSeeds       = "berth-upload-token-seeds"
	UploadKeys        = "berth-upload-token-keys"
	UploadProxySecret = "cdi-uploadproxy-server-cert" //nolint:gosec // G101: the name of a Secret, not a secret
	UploadClient      = "berth-upload-client"
)

const (
	proxyLasts  = 30 * 24 * time.Hour
	workerLasts = 7 * 24 * time.Hour

	uploadEvery = time.Minute
)

// Upload keeps the keys of uploads, makes the certificates of the proxy and those of workers.
type Upload struct {
	Reader    client.Reader // not a cached one: Secrets are not watched
	Writer    *cluster.Writer
	Namespace string
	Clock     clock.WithTicker

	mu sync.Mutex // two authorities must not be made at once
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only one makes keys.
func (u *Upload) NeedLeaderElection() bool { return true }

// Start keeps everything up to date as long as ctx lives.
func (u *Upload) Start(ctx context.Context) error {
	tick := u.Clock.NewTicker(uploadEvery)
	defer tick.Stop()
	for {
		if err := u.Sync(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "keep the keys of uploads") // tried again in a minute
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Sync makes what is missing or about to end. It may be repeated.
func (u *Upload) Sync(ctx context.Context) error {
	authority, err := u.authority(ctx)
	if err != nil {
		return err
	}
	if err := u.tokens(ctx); err != nil {
		return err
	}
	if err := u.publish(ctx, config.UploadProxyBundle, map[string]string{config.UploadProxyBundleKey: string(authority[bundleFile])}); err != nil {
		return err
	}
	serving, err := u.proxyNames(ctx)
	if err != nil {
		return err
	}
	if err := u.certificate(ctx, UploadProxySecret, authority, serving); err != nil {
		return err
	}
	return u.certificate(ctx, UploadClient, authority, pki.Leaf{
		Name: render.UploadClient, Use: x509.ExtKeyUsageClientAuth, Lasts: proxyLasts,
	})
}

// Worker makes the files of a worker: its certificate, which is good for name alone, and the authorities it trusts.
func (u *Upload) Worker(ctx context.Context, name string) (map[string][]byte, error) {
	authority, err := u.authority(ctx)
	if err != nil {
		return nil, err
	}
	return issue(authority, pki.Leaf{
		Name: name, DNSNames: []string{name}, Use: x509.ExtKeyUsageServerAuth, Lasts: workerLasts,
	}, u.Clock.Now())
}

func issue(authority map[string][]byte, leaf pki.Leaf, now time.Time) (map[string][]byte, error) {
	a, err := pki.Load(pki.Pair{Certificate: authority[corev1.TLSCertKey], Key: authority[corev1.TLSPrivateKeyKey]})
	if err != nil {
		return nil, err
	}
	p, err := a.Issue(leaf, now)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		corev1.TLSCertKey: p.Certificate, corev1.TLSPrivateKeyKey: p.Key, bundleFile: authority[bundleFile],
	}, nil
}

func (u *Upload) authority(ctx context.Context) (map[string][]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.kept(ctx, UploadAuthority)
}

// kept returns the authority of that name, made or replaced if it is time.
func (u *Upload) kept(ctx context.Context, name string) (map[string][]byte, error) {
	have, err := u.read(ctx, name)
	if err != nil {
		return nil, err
	}
	want, err := rotateAuthority(have, u.Clock.Now())
	if err != nil {
		return nil, err
	}
	return want, u.write(ctx, name, have, want)
}

func (u *Upload) tokens(ctx context.Context) error {
	have, err := u.read(ctx, UploadSeeds)
	if err != nil {
		return err
	}
	want, err := token.Seeds(have).Rotate(u.Clock.Now())
	if err != nil {
		return err
	}
	// The public half first: a key that cannot be checked must not sign.
	if err := u.publish(ctx, UploadKeys, want.Public()); err != nil {
		return err
	}
	return u.write(ctx, UploadSeeds, have, want)
}

// proxyNames returns the names in the proxy's certificate: every address it is reached at.
func (u *Upload) proxyNames(ctx context.Context) (pki.Leaf, error) {
	name := config.UploadProxyService
	leaf := pki.Leaf{Name: name, Use: x509.ExtKeyUsageServerAuth, Lasts: proxyLasts, IPs: []net.IP{net.IPv4(127, 0, 0, 1).To4()}}
	full := name + "." + u.Namespace + ".svc"
	leaf.DNSNames = []string{name, name + "." + u.Namespace, full, full + ".cluster.local", "localhost"}
	var service corev1.Service
	err := u.Reader.Get(ctx, types.NamespacedName{Namespace: u.Namespace, Name: name}, &service)
	if err != nil && !apierrors.IsNotFound(err) {
		return leaf, fmt.Errorf("read service %s/%s: %w", u.Namespace, name, err)
	}
	for _, text := range service.Spec.ClusterIPs {
		if ip := net.ParseIP(text); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		}
	}
	settings, err := config.NewReader(u.Reader).Settings(ctx)
	if err != nil {
		return leaf, err
	}
	if host := hostOf(settings.UploadProxyURL); host != "" && !slices.Contains(leaf.DNSNames, host) {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	return leaf, nil
}

// hostOf returns the host in a URL, which may lack its scheme.
func hostOf(address string) string {
	for _, text := range []string{address, "https://" + address} {
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			return u.Hostname()
		}
	}
	return ""
}

// certificate keeps a Secret with a certificate that is renewed after two thirds of its time, has every required name, and comes
// with the authorities to trust.
func (u *Upload) certificate(ctx context.Context, name string, authority map[string][]byte, leaf pki.Leaf) error {
	have, err := u.read(ctx, name)
	if err != nil {
		return err
	}
	now := u.Clock.Now()
	if serves(have, authority, leaf, now) {
		return nil
	}
	want, err := issue(authority, leaf, now)
	if err != nil {
		return err
	}
	return u.write(ctx, name, have, want)
}

func serves(have, authority map[string][]byte, leaf pki.Leaf, now time.Time) bool {
	c, err := pki.Parse(have[corev1.TLSCertKey])
	signer, errSigner := pki.Parse(authority[corev1.TLSCertKey])
	if err != nil || errSigner != nil || !bytes.Equal(have[bundleFile], authority[bundleFile]) {
		return false
	}
	for _, ip := range leaf.IPs {
		if c.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	for _, name := range leaf.DNSNames {
		if c.VerifyHostname(name) != nil {
			return false
		}
	}
	return c.CheckSignatureFrom(signer) == nil && c.NotAfter.Sub(now) > leaf.Lasts/3
}

// read returns the content of a Secret, nothing if there is none.
func (u *Upload) read(ctx context.Context, name string) (map[string][]byte, error) {
	var s corev1.Secret
	err := u.Reader.Get(ctx, types.NamespacedName{Namespace: u.Namespace, Name: name}, &s)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read secret %s/%s: %w", u.Namespace, name, err)
	}
	return s.Data, nil
}

func (u *Upload) write(ctx context.Context, name string, have, want map[string][]byte) error {
	if have != nil && maps.EqualFunc(have, want, bytes.Equal) {
		return nil
	}
	return u.Writer.Apply(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: name, Labels: render.Labels("")}, Data: want,
	})
}

// publish keeps a ConfigMap.
func (u *Upload) publish(ctx context.Context, name string, want map[string]string) error {
	var have corev1.ConfigMap
	err := u.Reader.Get(ctx, types.NamespacedName{Namespace: u.Namespace, Name: name}, &have)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read config map %s/%s: %w", u.Namespace, name, err)
	}
	if err == nil && maps.Equal(have.Data, want) {
		return nil
	}
	return u.Writer.Apply(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: name, Labels: render.Labels("")}, Data: want,
	})
}
