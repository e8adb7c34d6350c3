package admission

import (
	"encoding/hex"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
)

// What to use instead of the two sources that are not here (SCOPE.md says why).
const (
	noVDDK = "source vddk is not supported: it needs a library that may not be shipped. Export the disk (ovftool, qemu-img) " +
		"and import it with source http or upload, or fill a claim with virt-v2v"
	noImageio = "source imageio is not supported: its server side is end of life. Download the disk image " +
		"and import it with source http or upload"
	noImageStream = "source registry cannot follow an imageStream: it exists on OpenShift only. Name the image in registry.url"
)

// digests are the checksum algorithms and the length of their sums in bytes.
var digests = map[string]int{"md5": 16, "sha1": 20, "sha256": 32, "sha512": 64}

// checkSource checks the source of a volume's data. It checks all fields that are set, so that a user gets all errors at once.
func checkSource(s *cdiv1.DataVolumeSource, archive bool, at *field.Path, c *causes) {
	switch n := countSources(s); {
	case n == 0:
		c.missing(at, "Missing Data volume source")
		return
	case n > 1:
		c.invalid(at, "Multiple Data volume sources")
		return
	}
	if kind, from := importsource.Of(s); kind != nil {
		checkServer(kind, from, at.Child(kind.Name), c)
	}
	if s.PVC != nil && (s.PVC.Namespace == "" || s.PVC.Name == "") {
		c.invalid(at.Child("PVC"), "%s source PVC is not valid", at.Child("PVC"))
	}
	if s.Snapshot != nil && (s.Snapshot.Namespace == "" || s.Snapshot.Name == "") {
		c.invalid(at.Child("Snapshot"), "%s source snapshot is not valid", at.Child("Snapshot"))
	}
	if s.VDDK != nil {
		c.invalid(at.Child("vddk"), noVDDK)
	}
	if s.Imageio != nil {
		c.invalid(at.Child("imageio"), noImageio)
	}
	if archive {
		checkArchive(s, at, c)
	}
}

// checkCheckpoints judges the stages of an import: each is a file in the directory that the source's URL names, with the name of its checkpoint.
func checkCheckpoints(s *cdiv1.DataVolumeSource, list []cdiv1.DataVolumeCheckpoint, archive bool, at *field.Path, c *causes) {
	if len(list) == 0 {
		return
	}
	kind, from := importsource.Of(s)
	switch {
	case kind == nil || kind.Name == "registry":
		c.invalid(at, "checkpoints go with source http, s3 or gcs: import the whole disk")
	case archive:
		c.invalid(at, "checkpoints go with a disk, and contentType is archive")
	case from.Checksum != "":
		c.invalid(at, "checkpoints do not go with a checksum, which is of one file")
	}
	seen := map[string]bool{}
	for i, one := range list {
		here := at.Index(i)
		if wrong := validation.IsQualifiedName(names.CheckpointCopied + one.Current); len(wrong) > 0 || one.Current == "" {
			c.invalid(here.Child("current"), "%q is no name of a checkpoint: it is the name of a file, of at most %d letters, digits, dashes, dots and underscores",
				one.Current, longestCheckpoint)
		}
		if seen[one.Current] {
			c.invalid(here.Child("current"), "checkpoint %q is there twice", one.Current)
		}
		if seen[one.Current] = true; i > 0 && one.Previous != list[i-1].Current {
			c.invalid(here.Child("previous"), "checkpoint %q is what changed since %q, and the one before it is %q", one.Current, one.Previous, list[i-1].Current)
		}
	}
}

// longestCheckpoint is how long the name of a checkpoint can be: it becomes part of an annotation's name.
const longestCheckpoint = 63 - len("storage.checkpoint.copied.")

func countSources(s *cdiv1.DataVolumeSource) int {
	n, all := 0, reflect.ValueOf(s).Elem()
	for i := range all.NumField() {
		if !all.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func checkArchive(s *cdiv1.DataVolumeSource, at *field.Path, c *causes) {
	switch {
	case s.Blank != nil:
		c.invalid(at.Child("blank"), "SourceType cannot be blank and the contentType be archive")
	case s.HTTP == nil && s.Upload == nil && s.PVC == nil && s.Snapshot == nil:
		c.invalid(at, "contentType archive goes with source http or upload")
	}
}

func checkURL(raw string, at *field.Path, c *causes, schemes ...string) {
	if raw == "" {
		c.missing(at, "%s source URL is empty", at)
		return
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The error of the url package repeats the URL, which may hold a password.
		c.invalid(at, "%s source URL is invalid", at)
		return
	}
	if !slices.Contains(schemes, u.Scheme) {
		c.invalid(at, "%s Invalid source URL scheme: %q, use %s", at, u.Scheme, strings.Join(schemes, ", "))
		return
	}
	if u.Host == "" {
		c.invalid(at, "%s source URL has no host", at)
	}
}

func checkChecksum(sum string, at *field.Path, c *causes) {
	if sum == "" {
		return
	}
	algorithm, value, _ := strings.Cut(sum, ":")
	size, known := digests[algorithm]
	raw, err := hex.DecodeString(value)
	if !known || err != nil || len(raw) != size {
		c.invalid(at, "%s must be algorithm:hex with a whole md5, sha1, sha256 or sha512 sum", at)
	}
}

func checkServer(kind *importsource.Kind, s importsource.Source, at *field.Path, c *causes) {
	if s.ImageStream != "" {
		c.invalid(at.Child("imageStream"), noImageStream)
		return
	}
	switch s.PullMethod {
	case "", cdiv1.RegistryPullPod, cdiv1.RegistryPullNode:
	default:
		c.invalid(at.Child("pullMethod"), `PullMethod %s is neither "pod", "node" nor ""`, s.PullMethod)
	}
	checkChecksum(s.Checksum, at.Child("checksum"), c)
	if kind.Name == "registry" && strings.HasPrefix(s.URL, cdiv1.RegistrySchemeOci+":") {
		return // a path and no host
	}
	checkURL(s.URL, at.Child("url"), c, kind.Schemes...)
}
