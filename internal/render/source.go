package render

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/task"
)

// UploadPort is the port of an upload worker; the proxy is the only client it accepts.
const UploadPort = 8443

// UploadClient is the common name of the proxy's certificate.
const UploadClient = "client.upload-server.cdi.kubevirt.io"

// UploadServer is the name that the certificate of an upload worker is for.
func UploadServer(namespace, pod string) string { return pod + "." + namespace + ".upload.berth.dev" }

// Network holds the administrator's settings for how workers reach their sources.
type Network struct {
	HTTPProxy, HTTPSProxy, NoProxy string
	// InsecureRegistries are the hosts ("registry.local:5000") that may be spoken to without a trusted certificate.
	InsecureRegistries []string
	// Mirrors are the registries that images are read from instead of the named ones.
	Mirrors importsource.Mirrors
}

// Mirrored returns the address from which an image is read with a Secret, or without one (""). Credentials are only sent to the
// registry that was named with them.
func (n Network) Mirrored(image, secret string) string {
	if secret != "" {
		return image
	}
	return n.Mirrors.Image(image)
}

// Plain says that the registry of an image ("docker://registry.local:5000/disk") may be spoken to without a trusted certificate, or without TLS.
func (n Network) Plain(image string) bool {
	u, err := url.Parse(image)
	return err == nil && slices.Contains(n.InsecureRegistries, u.Host)
}

// Origin is a source as a worker gets it: its part of the task and what must be mounted for it.
type Origin struct {
	Source   task.Source
	Checksum string
	Secrets  []Secret
}

// FromSource turns the source of a DataVolume (or of a VolumeImportSource) into a worker's. Clones are not among them:
// what a worker reads from there depends on where the claims are. An error says what cannot be done and what to use.
func FromSource(s *cdiv1.DataVolumeSource, n Network) (Origin, error) {
	if s == nil {
		return Origin{}, fmt.Errorf("the volume has no source")
	}
	if kind, from := importsource.Of(s); kind != nil {
		return FromServer(kind, from, n)
	}
	switch {
	case s.Blank != nil:
		return Origin{Source: task.Source{Blank: &task.Blank{}}}, nil
	case s.Upload != nil:
		return Origin{Source: task.Source{Upload: &task.Upload{
			Listen: fmt.Sprintf(":%d", UploadPort), TLSDir: TLSDir, ClientCADir: TLSDir, ClientName: UploadClient,
		}}}, nil
	case s.VDDK != nil:
		return Origin{}, fmt.Errorf("source vddk is not supported: export the disk and import it with source http")
	case s.Imageio != nil:
		return Origin{}, fmt.Errorf("source imageio is not supported: download the disk and import it with source http")
	}
	return Origin{}, fmt.Errorf("the volume's source names nothing to import")
}

// FromServer turns a place at a server into a worker's source.
func FromServer(kind *importsource.Kind, from importsource.Source, n Network) (Origin, error) {
	if from.URL == "" && from.ImageStream != "" {
		return Origin{}, fmt.Errorf("source %s needs a url: image streams are not supported", kind.Name)
	}
	if from.URL == "" {
		return Origin{}, fmt.Errorf("source %s needs a url", kind.Name)
	}
	o := Origin{Checksum: from.Checksum}
	o.Source = kind.Task(from, o.access(n, from.Secret, from.Certificates))
	for i, name := range from.SecretHeaders {
		o.Source.HTTP.HeadersDir = HeaderDir // no other kind has headers
		o.Secrets = append(o.Secrets, Secret{Name: name, Dir: path.Join(HeaderDir, strconv.Itoa(i))})
	}
	if r := o.Source.Registry; r != nil {
		if from.Secret == "" {
			r.URL = n.Mirrors.URL(r.URL)
		}
		if n.Plain(r.URL) {
			r.PlainHTTP, r.Insecure = true, true
		}
	}
	return o, nil
}

// access mounts what the source names and tells the worker where.
func (o *Origin) access(n Network, secret, certs string) task.Access {
	a := task.Access{HTTPProxy: n.HTTPProxy, HTTPSProxy: n.HTTPSProxy, NoProxy: n.NoProxy}
	if secret != "" {
		a.CredentialsDir = CredentialDir
		o.Secrets = append(o.Secrets, Secret{Name: secret, Dir: CredentialDir})
	}
	if certs != "" {
		a.CADir = CADir
		o.Secrets = append(o.Secrets, Secret{Name: certs, Dir: CADir, ConfigMap: true})
	}
	return a
}

// Describe returns a source's name for messages, without anything that could be a credential.
func Describe(s *cdiv1.DataVolumeSource) string {
	if s == nil {
		return "another populator"
	}
	if kind, from := importsource.Of(s); kind != nil {
		return plain(from.URL)
	}
	switch {
	case s.PVC != nil:
		return fmt.Sprintf("pvc %s/%s", s.PVC.Namespace, s.PVC.Name)
	case s.Snapshot != nil:
		return fmt.Sprintf("snapshot %s/%s", s.Snapshot.Namespace, s.Snapshot.Name)
	case s.Upload != nil:
		return "an upload"
	}
	return "a blank disk"
}

// plain drops user and query of a URL: both are where people put keys.
func plain(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return strings.SplitN(raw, "?", 2)[0]
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
