// Package importsource is the one table of the servers that a disk can be imported from: what each kind is called, which
// addresses it takes, how the API spells it, and what a worker is told of it.
//
// It is pure. It does not know how a worker reads from such a server (internal/transfer/source does), nor clones and uploads.
package importsource

import (
	"slices"

	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/task"
)

// Source describes where an import finds its disk. A kind that has no use for a field drops it.
type Source struct {
	URL           string
	Secret        string // with credentials
	Certificates  string // a ConfigMap with authorities to trust
	Checksum      string
	Headers       []string
	SecretHeaders []string // Secrets with headers
	Insecure      *bool    // do not verify the server's certificate
	Architecture  string   // of a container image
	PullMethod    cdiv1.RegistryPullMethod
	ImageStream   string
}

// NeedsSecrets reports whether the import needs what only its namespace has.
func (s Source) NeedsSecrets() bool {
	return s.Secret != "" || s.Certificates != "" || len(s.SecretHeaders) > 0
}

// Kind is one kind of server.
type Kind struct {
	// Name is the field in a DataVolume's source, and the word for it in annotations and in virtctl.
	Name    string
	Schemes []string
	read    func(*cdiv1.DataVolumeSource) (Source, bool)
	write   func(*cdiv1.DataVolumeSource, Source)
	// Task returns the source in the worker's terms.
	Task func(Source, task.Access) task.Source
}

// Kinds are all kinds of sources.
var Kinds = []Kind{
	{Name: "http", Schemes: []string{"http", "https"}, read: readHTTP, write: writeHTTP, Task: func(s Source, a task.Access) task.Source {
		a.Insecure = ptr.Deref(s.Insecure, false)
		return task.Source{HTTP: &task.HTTP{URL: s.URL, Headers: s.Headers, Access: a}}
	}},
	{Name: "s3", Schemes: []string{"http", "https", "s3"}, read: readS3, write: writeS3, Task: func(s Source, a task.Access) task.Source {
		return task.Source{S3: &task.S3{URL: s.URL, Access: a}}
	}},
	{Name: "gcs", Schemes: []string{"http", "https", "gs"}, read: readGCS, write: writeGCS, Task: func(s Source, a task.Access) task.Source {
		return task.Source{GCS: &task.GCS{URL: s.URL, Access: a}}
	}},
	{Name: "registry", Schemes: []string{cdiv1.RegistrySchemeDocker, cdiv1.RegistrySchemeOci}, read: readRegistry, write: writeRegistry, Task: func(s Source, a task.Access) task.Source {
		return task.Source{Registry: &task.Registry{URL: s.URL, Architecture: s.Architecture, Access: a}}
	}},
}

// Names returns the kinds' names.
func Names() (names []string) {
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	return names
}

// Named returns the kind with a name; nil if there is none.
func Named(name string) *Kind {
	if i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return &Kinds[i]
	}
	return nil
}

// Of returns the server that a source names, and its kind; nil if it names none. Only the first counts: admission refuses two.
func Of(s *cdiv1.DataVolumeSource) (*Kind, Source) {
	if s == nil {
		return nil, Source{}
	}
	for i, k := range Kinds {
		if found, ok := k.read(s); ok {
			return &Kinds[i], found
		}
	}
	return nil, Source{}
}

// Source returns the source as the API spells it.
func (k *Kind) Source(s Source) *cdiv1.DataVolumeSource {
	out := &cdiv1.DataVolumeSource{}
	k.write(out, s)
	return out
}

// FromImport returns the source of a VolumeImportSource as a DataVolume has it.
func FromImport(s *cdiv1.ImportSourceType) *cdiv1.DataVolumeSource {
	if s == nil {
		return &cdiv1.DataVolumeSource{}
	}
	return &cdiv1.DataVolumeSource{HTTP: s.HTTP, S3: s.S3, GCS: s.GCS, Registry: s.Registry, Blank: s.Blank, Imageio: s.Imageio, VDDK: s.VDDK}
}

// ToImport returns the source of a DataVolume as a VolumeImportSource has it.
func ToImport(s *cdiv1.DataVolumeSource) *cdiv1.ImportSourceType {
	return &cdiv1.ImportSourceType{HTTP: s.HTTP, S3: s.S3, GCS: s.GCS, Registry: s.Registry, Blank: s.Blank, Imageio: s.Imageio, VDDK: s.VDDK}
}
