package metadata

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-vm/berth/internal/pki"
	wire "github.com/berth-vm/berth/internal/snapshotmetadata"
)

const (
	authorityLasts = 10 * 365 * 24 * time.Hour
	leafLasts      = 30 * 24 * time.Hour // a new one is made when half of it is over
)

// Keys are the keys that clients of the service trust: one authority, which is stored in a Secret, signs a certificate for each process.
type Keys struct {
	Kube      kubernetes.Interface
	Objects   dynamic.Interface
	Namespace string
	Service   string // the Service in front of all nodes; the Secret has its name too
	Port      string
	Driver    string
	Audience  string

	authority *pki.Authority
	mu        sync.Mutex
	leaf      *tls.Certificate
	renew     time.Time
}

// host is the name that certificates are for.
func (k *Keys) host() string { return k.Service + "." + k.Namespace + ".svc" }

// Load reads the authority from its Secret. The first process that finds none makes it.
func (k *Keys) Load(ctx context.Context, now time.Time) error {
	secrets := k.Kube.CoreV1().Secrets(k.Namespace)
	kept, err := secrets.Get(ctx, k.Service, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if kept, err = k.fresh(now); err != nil {
			return err
		}
		made, cerr := secrets.Create(ctx, kept, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(cerr) {
			made, cerr = secrets.Get(ctx, k.Service, metav1.GetOptions{})
		}
		kept, err = made, cerr
	}
	if err != nil {
		return fmt.Errorf("authority of %s: %w", k.host(), err)
	}
	k.authority, err = pki.Load(pki.Pair{Certificate: kept.Data[corev1.TLSCertKey], Key: kept.Data[corev1.TLSPrivateKeyKey]})
	if err != nil {
		return fmt.Errorf("secret %s/%s (delete it, and a new authority is made): %w", k.Namespace, k.Service, err)
	}
	return nil
}

func (k *Keys) fresh(now time.Time) (*corev1.Secret, error) {
	a, err := pki.New(k.host(), now, authorityLasts)
	if err != nil {
		return nil, err
	}
	pair, err := a.PEM()
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Service}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key},
	}, nil
}

// Server returns the credentials that this process shows to callers.
func (k *Keys) Server() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return k.certificate(time.Now())
	}})
}

func (k *Keys) certificate(now time.Time) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaf != nil && now.Before(k.renew) {
		return k.leaf, nil
	}
	pair, err := k.authority.Issue(pki.Leaf{
		Name: k.host(), DNSNames: []string{k.host(), k.host() + ".cluster.local", k.Service + "." + k.Namespace},
		Use: x509.ExtKeyUsageServerAuth, Lasts: leafLasts,
	}, now)
	if err != nil {
		return nil, err
	}
	leaf, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, err
	}
	k.leaf, k.renew = &leaf, now.Add(leafLasts/2)
	return k.leaf, nil
}

// Announce writes the object that clients find the service by.
func (k *Keys) Announce(ctx context.Context) error {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": wire.Group + "/" + wire.Version, "kind": "SnapshotMetadataService",
		"metadata": map[string]any{"name": k.Driver},
		"spec": map[string]any{
			"address": net.JoinHostPort(k.host(), k.Port), "audience": k.Audience,
			"caCert": base64.StdEncoding.EncodeToString(pki.PEM(k.authority.Certificate().Raw)),
		},
	}}
	services := schema.GroupVersionResource{Group: wire.Group, Version: wire.Version, Resource: wire.Resource}
	_, err := k.Objects.Resource(services).Apply(ctx, k.Driver, o, metav1.ApplyOptions{FieldManager: k.Service, Force: true})
	if err != nil {
		return fmt.Errorf("announce the service: %w", err)
	}
	return nil
}

// Peer connects to the service on another node: the ready pod there that the labels choose.
func (k *Keys) Peer(labels string) func(ctx context.Context, node string) (grpc.ClientConnInterface, func() error, error) {
	return func(ctx context.Context, node string) (grpc.ClientConnInterface, func() error, error) {
		pods, err := k.Kube.CoreV1().Pods(k.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels, FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return nil, nil, fmt.Errorf("look for the service there: %w", err)
		}
		for _, p := range pods.Items {
			if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
				continue
			}
			roots := x509.NewCertPool()
			roots.AddCert(k.authority.Certificate())
			conn, err := grpc.NewClient(net.JoinHostPort(p.Status.PodIP, k.Port), grpc.WithTransportCredentials(
				credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: k.host(), MinVersion: tls.VersionTLS12})))
			if err != nil {
				return nil, nil, err
			}
			return conn, conn.Close, nil
		}
		return nil, nil, errors.New("the service does not run there")
	}
}
